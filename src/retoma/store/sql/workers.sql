-- name: register_worker
-- Add a worker with its links. Its id is never reused.
with worker as (
  insert into retoma.workers (name, queues, concurrency, started_at, heartbeat_at, heartbeat_timeout, pipelines, allow_hosts)
  values (:name, :queues::text[], :concurrency, retoma.now(), retoma.now(), :heartbeat_timeout, :pipelines::text[],
          :allow_hosts::text[])
  returning id
), links as (
  insert into retoma.worker_links (worker, link, call_number)
  select worker.id, link, 0
    from worker, generate_series(1, :links::int) as link
)
select id
  from worker;

-- name: send_heartbeat
-- Record a worker's heartbeat. Returns nothing if it was declared dead, and otherwise what people ask of it.
update retoma.workers
   set heartbeat_at = retoma.now()
 where id = :worker and ended_at is null
returning drain_requested_at is not null as is_draining,
          exists (select from retoma.worker_stacks s where s.worker = :worker and s.answered_at is null) as wants_stacks;

-- name: report_stacks
-- Answer the request for the stacks of a worker's jobs.
update retoma.worker_stacks
   set answered_at = retoma.now(), jobs = :jobs::json
 where worker = :worker and answered_at is null;

-- name: request_stacks
-- Ask a running worker for the stacks of its jobs. A request that it has not answered yet stays.
insert into retoma.worker_stacks as s (worker, requested_at, requested_by)
select id, retoma.now(), :by
  from retoma.workers
 where id = :worker and ended_at is null
    on conflict (worker) do update
   set requested_at = excluded.requested_at, requested_by = excluded.requested_by, answered_at = null, jobs = null
 where s.answered_at is not null
returning s.worker;

-- name: list_stacks
-- The requests for stacks that were made of running workers.
select s.worker, s.requested_at, s.requested_by, s.answered_at, s.jobs::text as jobs
  from retoma.worker_stacks s
 where :worker::int is null or s.worker = :worker
 order by s.worker desc;

-- name: list_running_jobs
-- The jobs that workers run, the oldest first, among the oldest open runs.
select j.worker, j.run, r.title as run_title, v.pipeline, t.name as tenant, j.step, j.item, j.revision, j.attempt, j.started_at
  from (select id, title from retoma.runs
         where ended_at is null and (:tenants::int[] is null or tenant = any (:tenants))
         order by id limit :max_runs) r,
       lateral (select * from retoma.jobs j where j.run = r.id and j.state = 'running' offset 0) j
  join retoma.versions v on v.id = j.version
  join retoma.tenants t on t.id = j.tenant
 order by j.started_at, j.run, j.step, j.item
 limit :limit;

-- name: request_drain
select retoma.request_drain(:worker, :by) as found;

-- name: deregister_worker
-- Deregister a worker that stops, and release its jobs.
select retoma.deregister_worker(:worker, 'interrupted', 'INTERRUPTED') as jobs;

-- name: deregister_blocked_worker
-- Deregister a worker whose event loop a step blocks beyond its timeout: its jobs run elsewhere.
select retoma.deregister_worker(:worker, 'died', 'BLOCKED_LOOP') as jobs;

-- name: list_workers
select id, name, queues, concurrency, started_at, ended_at, retoma.now() - heartbeat_at as heartbeat_age,
       heartbeat_timeout, pipelines, allow_hosts, drain_requested_at, drain_requested_by
  from retoma.workers
 where ended_at is null
 order by id desc;

-- name: list_busy_workers
-- The names of workers that run jobs.
select w.name
  from retoma.busy_workers(:max_runs) b (id)
  join retoma.workers w on w.id = b.id;

-- name: find_unwanted_jobs
-- Which of these jobs this worker no longer owns, or belong to a cancelled run, so they must be stopped.
select o.run, o.step, o.item, o.revision, o.fence
  from unnest(:run::uuid[], :step::text[], :item::text[], :revision::int[], :fence::int[]) as o (run, step, item, revision, fence)
 where not exists (select from retoma.jobs j
                    where j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
                      and j.worker = :worker and j.fence = o.fence and j.state = 'running'
                      and not (j.stopping and exists (select from retoma.runs r where r.id = j.run and r.state = 'cancelling')));

-- name: notify_workers
-- Wake sleeping workers.
select pg_notify('retoma_ready', '');
