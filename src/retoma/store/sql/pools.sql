-- name: declare_pool
-- Declare a pool as the application defines it. Limits that a person has set since stay, unless the application declares others
-- now.
insert into retoma.pools as p (name, declared, capacity, rate, burst, per_tenant, tokens, tokens_at)
values (:name, json_build_object('capacity', :capacity::int, 'rate', :rate::float, 'burst', :burst::int, 'per_tenant', :per_tenant::int),
        :capacity, :rate, :burst, :per_tenant, :burst, retoma.now())
    on conflict (name) do update
   set declared = excluded.declared, capacity = excluded.capacity, rate = excluded.rate, burst = excluded.burst,
       per_tenant = excluded.per_tenant, tokens = least(p.tokens, excluded.burst)
 where jsonb_strip_nulls(p.declared::jsonb) <> jsonb_strip_nulls(excluded.declared::jsonb);

-- name: set_pool
-- Change the given limits; the others stay.
update retoma.pools p
   set capacity = coalesce(:capacity::int, p.capacity),
       rate = case when :rate::float = 0 then null else coalesce(:rate::float, p.rate) end,
       burst = coalesce(:burst::int, p.burst),
       per_tenant = case when :per_tenant::int = 0 then null else coalesce(:per_tenant::int, p.per_tenant) end,
       paused_until = case when :resume::boolean then null else p.paused_until end,
       failures = case when :resume::boolean then 0 else p.failures end,
       open_until = case when :resume::boolean then null else p.open_until end,
       probed_at = case when :resume::boolean then null else p.probed_at end,
       trouble = case when :resume::boolean then null else p.trouble end
 where p.name = :name
returning p.name;

-- name: list_pools
-- All pools, or the one of this name. `waiting` counts the jobs of one tenant, if one is given.
select p.name, p.capacity, p.rate, p.burst, p.per_tenant, case when p.paused_until > retoma.now() then p.paused_until end as paused_until,
       p.failures, case when p.open_until > retoma.now() then p.open_until end as open_until, p.trouble as problem,
       coalesce(h.used, 0)::int as used, coalesce(h.holders, 0)::int as holders, coalesce(w.waiting, 0)::int as waiting
  from retoma.pools p
  left join (select pool, sum(slots) as used, count(*) as holders from retoma.holdings group by pool) h on h.pool = p.name
  left join (select pool, count(*) as waiting
               from retoma.jobs j
              where retoma.is_claimable(j) and pool is not null
                and (:tenant::int is null or tenant = :tenant)
              group by pool) w on w.pool = p.name
 where :name::text is null or p.name = :name
 order by p.name;
