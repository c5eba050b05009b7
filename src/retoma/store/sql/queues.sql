-- name: find_queue
-- Whether a step uses this queue, or a running worker serves it.
select exists (select from retoma.steps where queue = :queue)
    or exists (select from retoma.workers where ended_at is null and :queue = any (queues)) as found;

-- name: pause_queue
-- Pause a queue. A queue that is paused already keeps its pause.
insert into retoma.queues as q (name, paused_at, paused_by, pause_reason)
values (:queue, retoma.now(), :by, :reason)
    on conflict (name) do update
   set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
 where q.paused_at is null;

-- name: resume_queue
delete from retoma.queues where name = :queue;

-- name: list_restricted_queues
select name, paused_at is not null as is_paused
  from retoma.queues;
