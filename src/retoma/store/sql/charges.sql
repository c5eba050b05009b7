-- name: write_charges
-- Record what attempts have used, priced at the current price unless the provider reported the cost.
insert into retoma.charges
  (id, run, step, item, revision, attempt, tenant, at, provider, resource, tokens_in, tokens_out, units, micros, price)
select c.id, c.run, c.step, c.item, c.revision, c.attempt, c.tenant, retoma.now(), c.provider, c.resource, c.tokens_in, c.tokens_out,
       c.units,
       coalesce(c.micros, round((c.tokens_in::numeric * p.tokens_in + c.tokens_out::numeric * p.tokens_out) / 1000000
                                + c.units::numeric * p.unit)::bigint),
       p.version
  from unnest(:id::uuid[], :run::uuid[], :step::text[], :item::text[], :revision::int[], :attempt::int[], :tenant::int[],
              :provider::text[], :resource::text[], :tokens_in::bigint[], :tokens_out::bigint[], :units::float[], :micros::bigint[])
       as c (id, run, step, item, revision, attempt, tenant, provider, resource, tokens_in, tokens_out, units, micros)
  left join lateral (
    select p.* from retoma.prices p
     where p.provider = c.provider and p.resource = c.resource and c.micros is null
     order by p.version desc limit 1) p on true
    on conflict (id) do nothing;

-- name: list_charges
-- In the order in which they were recorded.
select id, run, step, item, revision, attempt, at, provider, resource, tokens_in, tokens_out, units, micros, price
  from retoma.charges
 where run = :run and (:after::uuid is null or id > :after)
 order by id
 limit :limit;

-- name: sum_charges
-- Sum charges, grouped by the names in `by`; of one run, with those of its child runs, of their children and so on. Those of removed
-- runs have no run and no item, and are known by the hour.
with recursive family as (
  select :run::uuid as id
  union
  select child.id
    from family f,
         -- Run by run, by their index.
         lateral (select r.id from retoma.runs r where r.parent is not null and (r.parent).run = f.id offset 0) child
)
select case when 'tenant' = any (:by::text[]) then t.name end as tenant,
       case when 'run' = any (:by) then c.run end as run,
       case when 'step' = any (:by) then c.step end as step,
       case when 'item' = any (:by) then c.item end as item,
       case when 'provider' = any (:by) then c.provider end as provider,
       case when 'resource' = any (:by) then c.resource end as resource,
       case when 'day' = any (:by) then (c.at at time zone 'UTC')::date end as day,
       sum(c.charges)::bigint as charges, sum(c.tokens_in)::bigint as tokens_in, sum(c.tokens_out)::bigint as tokens_out,
       sum(c.units) as units, coalesce(sum(c.micros), 0)::bigint as micros, sum(c.unpriced)::bigint as unpriced
  from (select n.tenant, n.run, n.step, n.item, n.provider, n.resource, n.at, 1 as charges, n.tokens_in, n.tokens_out, n.units, n.micros,
               (n.micros is null)::int as unpriced
          from retoma.charges n
         where (:run::uuid is null or n.run = any (array(select id from family)))
           and (:tenants::int[] is null or n.tenant = any (:tenants))
           and (:since::timestamptz is null or n.at >= :since)
           and (:until::timestamptz is null or n.at < :until)
           and (:pipeline::text is null
                or exists (select from retoma.runs r join retoma.versions v on v.id = r.version where r.id = n.run and v.pipeline = :pipeline))
         union all
        select n.tenant, null, n.step, null, n.provider, n.resource, n.hour, n.charges, n.tokens_in, n.tokens_out, n.units, n.micros, n.unpriced
          from retoma.charge_rollups n
         where :run::uuid is null
           and (:tenants::int[] is null or n.tenant = any (:tenants))
           and (:since::timestamptz is null or n.hour >= :since)
           and (:until::timestamptz is null or n.hour < :until)
           and (:pipeline::text is null or n.pipeline = :pipeline)) c
  join retoma.tenants t on t.id = c.tenant
 group by 1, 2, 3, 4, 5, 6, 7
 order by micros desc, 1, 2, 3, 4, 5, 6, 7
 limit :limit;

-- name: sum_charges_by_day
-- What the charges of these tenants cost on each day of a time zone. Tenant by tenant, by their indexes.
select c.day, sum(c.micros)::bigint as micros
  from retoma.tenants t,
       lateral (select (n.at at time zone :zone)::date as day, n.micros
                  from retoma.charges n
                 where n.tenant = t.id and n.at >= :since and n.micros is not null
                 union all
                select (n.hour at time zone :zone)::date, n.micros
                  from retoma.charge_rollups n
                 where n.tenant = t.id and n.hour >= :since and n.unpriced < n.charges
                offset 0) c
 where :tenants::int[] is null or t.id = any (:tenants)
 group by c.day
 order by c.day;

-- name: get_job_cost
-- What the attempts at a job have cost. Null if its external work has succeeded: the next attempt only reads the result.
select case when not exists (select from retoma.external_work o
                              where o.run = :run and o.step = :step and o.item = :item and o.revision = :revision
                                and o.state = 'succeeded')
            then coalesce(sum(c.micros), 0)::bigint end as micros
  from retoma.charges c
 where c.run = :run and c.step = :step and c.item = :item and c.revision = :revision;

-- name: list_prices
-- Every version, the newest of each first; of all resources, or of one.
select provider, resource, version, since, tokens_in, tokens_out, unit
  from retoma.prices
 where :resource::text is null or (provider, resource) = (:provider::text, :resource)
 order by provider, resource, version desc;

-- name: add_price
-- Add a version, unless the newest has the same prices.
insert into retoma.prices (provider, resource, version, since, tokens_in, tokens_out, unit)
select :provider, :resource, coalesce(max(version), 0) + 1, retoma.now(), :tokens_in, :tokens_out, :unit
  from retoma.prices
 where provider = :provider and resource = :resource
having not exists (
  select from (select * from retoma.prices where provider = :provider and resource = :resource order by version desc limit 1) p
   where (p.tokens_in, p.tokens_out, p.unit) = (:tokens_in::bigint, :tokens_out::bigint, :unit::bigint))
returning version;
