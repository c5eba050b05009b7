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
 where q.paused_at is null
returning q.name;

-- name: resume_queue
-- Resume a queue. Returns its name if it was paused.
with removed as (
  delete from retoma.queues where name = :queue and concurrency is null
  returning name
), resumed as (
  update retoma.queues
     set paused_at = null, paused_by = null, pause_reason = null
   where name = :queue and concurrency is not null and paused_at is not null
  returning name
)
select name from removed
 union all
select name from resumed;

-- name: limit_queue
select retoma.limit_queue(:queue, :concurrency);

-- name: list_restricted_queues
select q.name, q.paused_at is not null as is_paused,
       coalesce(q.concurrency <= (select count(*) from retoma.queue_slots s where s.queue = q.name and retoma.is_slot_held(s)), false) as is_full
  from retoma.queues q;
