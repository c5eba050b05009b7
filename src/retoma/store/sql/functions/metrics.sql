-- Jobs that are not final, by queue. Running, parked and waiting jobs are searched in the oldest open runs, because no index
-- may contain their state.
create or replace function retoma.jobs_by_queue(p_max_runs int) returns table (queue text, state text, jobs bigint)
stable language sql as $$
  with found as (
    select queue, 'ready' as state, count(*) as jobs
      from retoma.jobs j where retoma.is_claimable(j) and worker_deaths = 0 and pool is null
     group by queue
    union all
    select queue, 'ready', count(*)
      from retoma.jobs j where retoma.is_claimable(j) and worker_deaths > 0 and pool is null
     group by queue
    union all
    select queue, 'ready', count(*)
      from retoma.jobs j where retoma.is_claimable(j) and pool is not null
     group by queue
    union all
    select queue, 'delayed', count(*)
      from retoma.jobs where ready_at is not null
     group by queue
    union all
    select j.queue, j.state::text, count(*)
      from (select id from retoma.runs where ended_at is null order by id limit p_max_runs) r,
           lateral (select queue, state from retoma.jobs j
                     where j.run = r.id and j.state in ('waiting', 'running', 'parked') offset 0) j
     group by 1, 2
  )
  select queue, state, sum(jobs)::bigint from found group by 1, 2;
$$;

-- The same for one tenant, among its oldest open runs, with how long the next job of each queue has been ready.
create or replace function retoma.jobs_of_tenant_by_queue(p_tenant int, p_max_runs int)
  returns table (queue text, state text, jobs bigint, age interval)
stable language sql as $$
  with open_jobs as (
    select j.*, case when j.ready_at is not null then 'delayed' else j.state::text end as shown_state
      from (select id from retoma.runs where ended_at is null and tenant = p_tenant order by id limit p_max_runs) r,
           lateral (select * from retoma.jobs j
                     where j.run = r.id and j.state in ('waiting', 'ready', 'running', 'parked') offset 0) j
  ), next_ready as (
    select distinct on (o.queue) o.queue, o.run, o.step, o.item, o.revision
      from open_jobs o
     where o.shown_state = 'ready'
     order by o.queue, o.rank
  )
  select o.queue, o.shown_state, count(*), max(n.age) filter (where o.shown_state = 'ready')
    from open_jobs o
    left join (select f.queue, retoma.now() - retoma.ready_since(j) as age
                 from next_ready f
                 join retoma.jobs j on j.run = f.run and j.step = f.step and j.item = f.item and j.revision = f.revision) n
      on n.queue = o.queue
   group by 1, 2;
$$;

create or replace function retoma.jobs_by_pool() returns table (pool text, waiting bigint)
stable language sql as $$
  select pool, count(*)
    from retoma.jobs j
   where retoma.is_claimable(j) and pool is not null
   group by 1;
$$;

-- Tenants with ready jobs in a queue that need no pool.
create or replace function retoma.tenants_ready(p_queue text, p_limit int) returns setof int stable language sql as $$
  with recursive found (tenant) as (
    select 0
    union all
    select (select j.tenant from retoma.jobs j
             where j.queue = p_queue and j.tenant > found.tenant
               and retoma.is_claimable(j) and j.worker_deaths = 0 and j.pool is null
             order by j.tenant limit 1)
      from found where found.tenant is not null
  )
  select tenant from found where tenant > 0 limit p_limit;
$$;

-- The next jobs: of each queue and each pool, the first of every tenant.
create or replace function retoma.next_ready_jobs(p_tenants int) returns setof retoma.jobs
stable language sql as $$
  select * from retoma.first_ready_jobs(p_tenants, 1);
$$;

-- The first `p_jobs` ready jobs of every tenant, of each queue and each pool.
create or replace function retoma.first_ready_jobs(p_tenants int, p_jobs int) returns setof retoma.jobs
stable language sql as $$
  select j.*
    from (select distinct queue from retoma.steps) q,
         retoma.tenants_ready(q.queue, p_tenants) as t (tenant),
         lateral (select * from retoma.jobs j
                   where j.queue = q.queue and j.tenant = t.tenant
                     and retoma.is_claimable(j) and j.worker_deaths = 0 and j.pool is null
                   order by j.rank limit p_jobs) j
  union all
  select j.*
    from (select distinct queue from retoma.steps) q,
         lateral (select * from retoma.jobs j
                   where j.queue = q.queue
                     and retoma.is_claimable(j) and j.worker_deaths > 0 and j.pool is null
                   order by j.rank limit p_jobs) j
  union all
  select j.*
    from retoma.pools p,
         retoma.tenants_for_pool(p.name, null, null, true, 0, p_tenants) as t (tenant),
         lateral (select * from retoma.jobs j
                   where j.pool = p.name and j.tenant = t.tenant
                     and retoma.is_claimable(j) and j.pool is not null
                   order by j.rank, j.position limit p_jobs) j;
$$;

-- Of each step with ready jobs, the one that is first in line.
create or replace function retoma.next_ready_jobs_by_step(p_tenants int, p_jobs int) returns setof retoma.jobs
stable language sql as $$
  select (f.job).*
    from (select distinct on (v.pipeline, (j.job).step) j.job
            from (select f as job from retoma.first_ready_jobs(p_tenants, p_jobs) f) j
            join retoma.versions v on v.id = (j.job).version
           order by v.pipeline, (j.job).step, (j.job).rank) f;
$$;

-- Since when a ready job could run: since it was created or due, its last dependency or its external work ended, or it was
-- released.
create or replace function retoma.ready_since(p_job retoma.jobs) returns timestamptz
stable language sql as $$
  select greatest(p_job.created_at,
                  (select r.run_at from retoma.runs r where r.id = p_job.run),
                  (select o.ended_at from retoma.external_work o
                    where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision),
                  (select max(e.at)
                     from retoma.events e
                    where e.run = p_job.run
                      and (e.step = p_job.step and e.item = p_job.item
                           or exists (select from retoma.edges g
                                       where g.version = p_job.version and g.from_step = e.step and g.to_step = p_job.step
                                         and (not g.same_item or g.via <> '' or e.item = p_job.item)))));
$$;

-- Runs that are due and whose work has not started, among the oldest open ones.
create or replace function retoma.runs_not_started(p_max_runs int) returns table (run uuid, version int)
stable language sql as $$
  select r.id, r.version
    from (select id, version, state from retoma.runs where ended_at is null order by id limit p_max_runs) r,
         lateral (select exists (select from retoma.jobs j
                                   join retoma.steps s on s.version = j.version and s.step = j.step
                                  where j.run = r.id and j.started_at is not null
                                    and (s.pool is not null or not retoma.uses_pools(r.version))) as began offset 0) w
   where r.state <> 'pending' and not w.began;
$$;
