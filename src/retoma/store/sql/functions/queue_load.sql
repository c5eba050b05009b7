-- What waits and runs in a queue. `startable` counts the ready jobs that could start at once if there were workers: those without a
-- pool, and as many of the others as their pools have room for within `p_ahead`. `background` counts other work that needs a worker:
-- external work to poll, effects to look for, and webhooks to send. Running jobs are searched in the oldest open runs.
create or replace function retoma.queue_load(p_queue text, p_max_runs int, p_tenants int, p_ahead interval)
returns table (queued int, startable int, running int, busy_workers int, background int, oldest_wait interval)
stable language sql as $$
  with ready as (
    select null::text as pool, count(*) as jobs
      from retoma.jobs j
     where j.queue = p_queue and retoma.is_claimable(j) and j.worker_deaths = 0 and j.pool is null
    union all
    select null, count(*)
      from retoma.jobs j
     where j.queue = p_queue and retoma.is_claimable(j) and j.worker_deaths > 0 and j.pool is null
    union all
    select j.pool, count(*)
      from retoma.jobs j
     where j.queue = p_queue and retoma.is_claimable(j) and j.pool is not null
     group by j.pool
  ), running as (
    select count(*) as jobs, count(distinct j.worker) as workers
      from (select id from retoma.runs where ended_at is null order by id limit p_max_runs) r,
           lateral (select j.worker from retoma.jobs j
                     where j.run = r.id and j.queue = p_queue and j.state = 'running' offset 0) j
  ), served as (
    select s.version, s.step from retoma.steps s where s.queue = p_queue
  )
  select (select sum(r.jobs) from ready r)::int,
         (select sum(case when r.pool is null then r.jobs else least(r.jobs, retoma.pool_room(r.pool, p_queue, p_ahead)) end) from ready r)::int,
         running.jobs::int, running.workers::int,
         ((select count(*) from retoma.external_work o join served s on s.version = o.version and s.step = o.step
            where o.ended_at is null and o.next_at < 'infinity')
          + (select count(*) from retoma.effects e join served s on s.version = e.version and s.step = e.step
              where e.next_at is not null)
          + (select count(*) from retoma.deliveries d
              where d.ended_at is null and d.next_at <= retoma.now() + p_ahead
                and d.pipeline in (select v.pipeline from served s join retoma.versions v on v.id = s.version)))::int,
         (select max(retoma.now() - retoma.ready_since(j)) from retoma.next_ready_jobs(p_tenants) j where j.queue = p_queue)
    from running;
$$;

-- The workers that run jobs, searched in the oldest open runs.
create or replace function retoma.busy_workers(p_max_runs int) returns setof int stable language sql as $$
  select distinct j.worker
    from (select id from retoma.runs where ended_at is null order by id limit p_max_runs) r,
         lateral (select j.worker from retoma.jobs j where j.run = r.id and j.state = 'running' offset 0) j;
$$;

-- How many jobs of a queue a pool has room for: none while it is paused or its provider is down.
create or replace function retoma.pool_room(p_pool text, p_queue text, p_ahead interval) returns bigint stable language sql as $$
  select case when p.paused_until > retoma.now() or p.open_until > retoma.now() then 0
              else floor(least(greatest(p.capacity - coalesce((select sum(h.slots) from retoma.holdings h where h.pool = p.name), 0), 0)
                                 / coalesce((select min(s.slots) from retoma.steps s where s.queue = p_queue and s.pool = p.name), 1),
                               p.burst + p.rate * extract(epoch from p_ahead)))::bigint end
    from retoma.pools p
   where p.name = p_pool;
$$;
