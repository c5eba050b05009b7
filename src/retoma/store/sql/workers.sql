-- name: register_worker
-- A new worker with its lanes. Its id is never used again.
with worker as (
  insert into retoma.workers (name, queues, concurrency, started_at, beat_at, silence, pipelines, allow_hosts)
  values (:name, :queues::text[], :concurrency, retoma.now(), retoma.now(), :silence, :pipelines::text[],
          :allow_hosts::text[])
  returning id
), lanes as (
  insert into retoma.lanes (worker, lane, call)
  select worker.id, lane, 0
    from worker, generate_series(1, :lanes::int) as lane
)
select id
  from worker;

-- name: beat
-- The worker lives. Gives nothing if it was declared dead.
update retoma.workers
   set beat_at = retoma.now()
 where id = :worker and ended_at is null
returning id;

-- name: end_worker
-- The worker stops; what it still holds goes back.
select retoma.bury(:worker, 'interrupted', 'INTERRUPTED') as jobs;

-- name: bury_blocked_worker
-- A step blocks the worker's event loop beyond its time: what it holds runs elsewhere.
select retoma.bury(:worker, 'died', 'BLOCKED_LOOP') as jobs;

-- name: list_workers
select id, name, queues, concurrency, started_at, ended_at, retoma.now() - beat_at as heartbeat_age,
       silence as heartbeat_timeout, pipelines, allow_hosts
  from retoma.workers
 where ended_at is null
 order by id desc;

-- name: unwanted_jobs
-- Which of these are no longer this worker's, or of a run that is cancelled, so that they should be told.
select o.run, o.step, o.item, o.revision, o.fence
  from unnest(:run::uuid[], :step::text[], :item::text[], :revision::int[], :fence::int[]) as o (run, step, item, revision, fence)
 where not exists (select from retoma.jobs j
                    where j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
                      and j.worker = :worker and j.fence = o.fence and j.state = 'running'
                      and not (j.ending and exists (select from retoma.runs r where r.id = j.run and r.state = 'cancelling')));

-- name: tell_of_work
-- Wake the workers that sleep.
select pg_notify('retoma_ready', '');
