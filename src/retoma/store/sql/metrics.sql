-- name: count_jobs_by_queue
-- Jobs that are not final, by queue.
select queue, state, jobs
  from retoma.jobs_by_queue(:max_runs);

-- name: count_tenant_jobs_by_queue
-- The same for these tenants, with how long the next job has been ready.
select j.queue, j.state, sum(j.jobs)::int as jobs, max(j.age) as age
  from unnest(:tenants::int[]) as t (id),
       lateral retoma.jobs_of_tenant_by_queue(t.id, :max_runs) j
 group by j.queue, j.state;

-- name: list_queues
-- Every queue of a step or a worker, with its running workers, their total concurrency, its limit and its pause.
select q.queue, count(w.id)::int as workers, coalesce(sum(w.concurrency), 0)::int as concurrency,
       r.concurrency as concurrency_limit, r.paused_at, r.paused_by, r.pause_reason
  from (select queue from retoma.steps union select unnest(queues) from retoma.workers where ended_at is null) q
  left join retoma.workers w on w.ended_at is null and w.drain_requested_at is null and w.heartbeat_at >= retoma.now() - coalesce(w.heartbeat_timeout, :heartbeat_timeout::interval) and q.queue = any (w.queues)
  left join retoma.queues r on r.name = q.queue
 group by q.queue, r.name
 order by q.queue;

-- name: list_ready_ages
-- How long the next jobs have been ready, separately for those that wait for a pool.
select queue, pool, max(retoma.now() - retoma.ready_since(j)) as age
  from retoma.next_ready_jobs(:max_tenants) j
 group by queue, pool;

-- name: list_job_types
-- The steps that workers process, with their recent jobs and the wait of the next one: the steps of the newest version of each
-- pipeline, and those of other versions that have such jobs.
with types as (
  select v.pipeline, s.step, s.queue
    from (select distinct on (pipeline) pipeline, id from retoma.versions order by pipeline, id desc) v
    join retoma.steps s on s.version = v.id
   where s.review is null and not s.internal
), ready as (
  select v.pipeline, j.step, min(j.queue) as queue, max(retoma.now() - retoma.ready_since(j)) as age
    from retoma.next_ready_jobs_by_step(:max_tenants, :max_jobs) j
    join retoma.versions v on v.id = j.version
    join retoma.steps s on s.version = j.version and s.step = j.step
   where s.review is null and not s.internal
   group by v.pipeline, j.step
)
select pipeline, step, coalesce(t.queue, r.queue, m.queue) as queue, coalesce(m.ended, 0) as ended,
       coalesce(m.busy_seconds, 0) as busy_seconds, coalesce(retoma.now() - m.since, :window::interval) as window,
       m.queue_times, m.processing_times, r.age
  from types t
  full join ready r using (pipeline, step)
  full join (select * from retoma.job_metrics(retoma.now() - :window::interval, :max_events) where step is not null) m using (pipeline, step)
 order by pipeline, step;

-- name: list_queue_times
-- The queues of which workers have ended jobs recently.
select queue, ended, retoma.now() - since as window, queue_times, processing_times
  from retoma.job_metrics(retoma.now() - :window::interval, :max_events)
 where step is null;

-- name: sample_queues
select retoma.sample_queues(:max_runs, :max_queues, :heartbeat_timeout) as sampled;

-- name: list_queue_samples
-- The samples since then, of one queue or of all, in the order of time.
select at, queue, ready, delayed, running, slots, all_slots
  from retoma.queue_samples
 where at >= :since and (:queue::text is null or queue = :queue)
 order by at, queue;

-- name: get_queue_load
select queued, startable, running, busy_workers, background, oldest_wait
  from retoma.queue_load(:queue, :max_runs, :max_tenants, :ahead::interval);

-- name: find_worker_concurrency
-- The concurrency of the worker that served a queue last, among the newest workers.
select concurrency
  from (select queues, concurrency, id from retoma.workers order by id desc limit :limit::int) w
 where :queue = any (queues)
 order by id desc
 limit 1;

-- name: count_open_runs_by_state
-- Runs that have not ended; with `max_runs`, among the oldest ones.
select v.pipeline, r.state::text as state, sum(r.runs)::bigint as runs
  from (select o.version, o.state, count(*) as runs
          from (select version, state from retoma.runs
                 where ended_at is null and (:tenants::int[] is null or tenant = any (:tenants))
                 order by id limit :max_runs::int) o
         group by o.version, o.state) r
  join retoma.versions v on v.id = r.version
 group by 1, 2
 order by 1, 2;

-- name: count_open_runs
-- How many runs have not ended, and how many of them are stuck.
select (select count(*) from retoma.runs where ended_at is null and (:tenants::int[] is null or tenant = any (:tenants))) as open,
       (select count(*) from retoma.stuck_runs s join retoma.runs r on r.id = s.run
         where r.state = 'stuck' and (:tenants is null or r.tenant = any (:tenants))) as stuck;

-- name: count_runs_not_started
-- Runs that are due and whose work has not started, among the oldest open ones.
select v.pipeline, count(*) as runs
  from retoma.runs_not_started(:max_runs) r
  join retoma.versions v on v.id = r.version
 group by 1
 order by 1;

-- name: count_orphans
select v.pipeline, count(*) as orphans
  from retoma.effects e
  join retoma.versions v on v.id = e.version
 where e.orphaned_at is not null and e.resolved_at is null
 group by 1
 order by 1;

-- name: update_counters
select retoma.update_metric_counters(:limit);

-- name: list_counters
select pipeline, what, outcome, bucket, count, seconds
  from retoma.metric_counters
 order by pipeline, what, outcome, bucket;

-- name: get_delivery_metrics
-- Deliveries that are due, dead ones that could be redelivered, disabled endpoints, and how late the oldest due delivery is.
select count(*) filter (where state = 'due') as due, count(*) filter (where state = 'sending') as sending,
       (select count(*) from retoma.deliveries d join retoma.endpoints e on e.id = d.endpoint
         where d.state = 'dead' and e.disabled_at is null and (:tenants::int[] is null or d.tenant = any (:tenants))) as dead,
       (select count(*) from retoma.endpoints where disabled_at is not null and (:tenants::int[] is null or tenant = any (:tenants))) as disabled,
       retoma.now() - min(next_at) filter (where next_at <= retoma.now()) as late_for
  from retoma.deliveries
 where ended_at is null and (:tenants::int[] is null or tenant = any (:tenants));

-- name: get_upkeep
-- The ages of the last backup and of the last pass of retention, and what a restore holds back. It is counted only in a database that
-- was restored. Until the first pass has ended, its age is that of the migration that created its table.
select (select retoma.now() - max(b.taken_at) from retoma.backups b) as backup_age,
       (select retoma.now() - coalesce(p.pass_ended_at, m.applied_at)
          from retoma.retention_progress p
          join retoma.migrations m on m.number = 14) as retention_pass_age,
       coalesce((select c.webhooks + c.notifications
                   from retoma.count_held() c
                  where exists (select from retoma.restores)), 0) as held;

-- name: list_pool_metrics
-- The slots of each pool, the jobs that wait for them, and how long ago one last got its slots.
select p.name, p.capacity, coalesce(h.used, 0)::int as used, coalesce(w.waiting, 0)::int as waiting,
       coalesce(p.paused_until > retoma.now(), false) as is_paused, retoma.now() - h.newest_at as newest_for
  from retoma.pools p
  left join (select h.pool, sum(h.slots) as used, max(j.started_at) as newest_at
               from retoma.holdings h
               join retoma.jobs j on j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision
              group by h.pool) h on h.pool = p.name
  left join retoma.jobs_by_pool() w on w.pool = p.name
 order by p.name;

-- name: get_pipeline_metrics
-- Outcomes of the runs of a pipeline that ended since then or are open. An open run counts with the steps that it finished
-- since then, and with its duration if only the excluded steps are left. The duration leaves out open reviews, the excluded
-- steps from when their dependencies had ended, and the time between an end and the rerun that followed it.
with versions as materialized (
  -- Ids are in the order of time, so only runs created up to a day before are read, and those that took longer. The second day is
  -- for clients whose clock is wrong.
  select g.id, retoma.first_run_id_since(:since::timestamptz - interval '2 days') as first_run from retoma.versions g where g.pipeline = :pipeline
), recent as materialized (
  select r.id
    from versions g,
         lateral (select n.id from retoma.runs n
                   where n.version = g.id and n.id >= g.first_run and n.ended_at >= :since
                   union all
                  select n.id from retoma.runs n
                   where n.version = g.id and n.id < g.first_run and n.ended_at >= :since
                     and n.ended_at - n.created_at > interval '1 day'
                   union all
                  select n.id from retoma.runs n where n.version = g.id and n.ended_at is null offset 0) r
), counted as (
  select r.id, r.revision, r.version, greatest(r.created_at, r.run_at) as started_at, r.ended_at, r.state = 'failed' as has_failed,
         case
           when r.state = 'completed' then r.ended_at
           when r.ended_at is null and r.state <> 'pending' and cardinality(:excluded_steps::text[]) > 0 then (
             select max(j.ended_at) filter (where j.step <> all (:excluded_steps::text[]))
               from retoma.current_jobs(r.id) j
             having bool_and(j.step = any (:excluded_steps::text[]) or j.state in ('succeeded', 'skipped')))
         end as done_at
    from recent n,
         lateral (select * from retoma.runs r where r.id = n.id and (:tenants::int[] is null or r.tenant = any (:tenants)) offset 0) r
), done as (
  select c.id, c.revision, c.version, c.started_at, c.done_at
    from counted c
   where c.done_at >= :since
), aside as (
  select e.id, e.started_at, e.done_at, v.opened_at as first_at, coalesce(v.applied_at, v.ended_at) as last_at
    from done e
    join retoma.reviews v on v.run = e.id
   where v.planned
  union all
  select e.id, e.started_at, e.done_at, greatest(j.created_at, max(n.ended_at)), j.ended_at
    from done e
    join retoma.jobs j on j.run = e.id and j.step = any (:excluded_steps::text[]) and j.attempt > 0
    left join retoma.edges g on g.version = e.version and g.to_step = j.step
    left join retoma.jobs n on n.run = e.id and n.step = g.from_step and n.revision <= j.revision
   group by e.id, e.started_at, e.done_at, j.step, j.item, j.revision, j.created_at, j.ended_at
  union all
  select e.id, e.started_at, e.done_at, v.at, (select n.at from retoma.events n where n.run = v.run and n.id > v.id order by n.id limit 1)
    from done e
    join retoma.events v on v.run = e.id
   where e.revision > 1 and v.kind = 'end'
  union all
  -- Each run, also one with nothing to leave out: a join of the two would compare each run with each other one.
  select e.id, e.started_at, e.done_at, null, null
    from done e
), took as (
  select extract(epoch from t.done_at - t.started_at - coalesce((select sum(upper(span) - lower(span)) from unnest(t.aside) as spans (span)), '0'))::float as seconds
    from (select a.started_at, a.done_at,
                 range_agg(case when a.last_at > a.first_at then tstzrange(a.first_at, a.last_at) end) * tstzmultirange(tstzrange(a.started_at, a.done_at)) as aside
            from aside a
           group by a.id, a.started_at, a.done_at) t
), counted_steps as (
  select count(*) as steps, count(*) filter (where j.failures > 0 or j.worker_deaths > 0) as retried
    from counted e
    join retoma.jobs j on j.run = e.id
    join retoma.steps s on s.version = e.version and s.step = j.step
   where j.attempt > 0 and j.state in ('succeeded', 'failed', 'quarantined') and s.review is null and not s.internal
     and (e.ended_at is not null or j.ended_at >= :since)
)
select (select count(*) from counted where ended_at is not null)::int as ended,
       (select count(*) from counted where has_failed)::int as failed,
       counted_steps.steps::int as steps, counted_steps.retried::int as retried,
       (select count(*) from took)::int as timed,
       (select avg(seconds) from took) as mean_seconds,
       (select percentile_cont(0.5) within group (order by seconds) from took) as median_seconds
  from counted_steps;
