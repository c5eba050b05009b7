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
-- All pools, or the one of this name. `waiting` counts the jobs of these tenants.
select p.name, p.capacity, p.rate, p.burst, p.per_tenant, case when p.paused_until > retoma.now() then p.paused_until end as paused_until,
       p.failures, case when p.open_until > retoma.now() then p.open_until end as open_until, p.trouble as problem,
       coalesce(h.used, 0)::int as used, coalesce(h.holders, 0)::int as holders, coalesce(w.waiting, 0)::int as waiting
  from retoma.pools p
  left join (select pool, sum(slots) as used, count(*) as holders from retoma.holdings group by pool) h on h.pool = p.name
  left join (select pool, count(*) as waiting
               from retoma.jobs j
              where retoma.is_claimable(j) and pool is not null
                and (:tenants::int[] is null or tenant = any (:tenants))
              group by pool) w on w.pool = p.name
 where :name::text is null or p.name = :name
 order by p.name;

-- name: list_pool_holders
-- The jobs that hold slots, by pool, the oldest first. A parked job holds them for its external work.
select h.pool, h.slots, j.run, r.title as run_title, v.pipeline, t.name as tenant, j.step, j.item, j.state::text as state, j.started_at as since
  from retoma.holdings h
  join retoma.jobs j on j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision
  join retoma.runs r on r.id = j.run
  join retoma.versions v on v.id = j.version
  join retoma.tenants t on t.id = j.tenant
 where :tenants::int[] is null or j.tenant = any (:tenants)
 order by h.pool, j.started_at, j.run, j.step, j.item
 limit :limit;

-- name: list_pool_waiters
-- The jobs of each pool that wait for slots, in the order of their rank, the first few of each.
select p.name as pool, s.slots, r.id as run, r.title as run_title, v.pipeline, t.name as tenant, (j.job).step, (j.job).item,
       (j.job).state::text as state, retoma.ready_since(j.job) as since
  from retoma.pools p,
       lateral (select n as job from retoma.jobs n
                 where n.pool = p.name and retoma.is_claimable(n) and (:tenants::int[] is null or n.tenant = any (:tenants))
                 order by n.rank, n.run, n.position
                 limit :limit) j
  join retoma.runs r on r.id = (j.job).run
  join retoma.versions v on v.id = r.version
  join retoma.steps s on s.version = r.version and s.step = (j.job).step
  join retoma.tenants t on t.id = r.tenant
 order by p.name, (j.job).rank, r.id, (j.job).position;
