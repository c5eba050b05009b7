-- Record how many jobs each queue has, once a minute, and delete the samples of more than a day ago. Every worker and server calls
-- it. Returns whether it recorded anything.
create or replace function retoma.sample_queues(p_max_runs int, p_max_queues int, p_heartbeat_timeout interval) returns boolean
language plpgsql as $$
declare
  v_at timestamptz := date_trunc('minute', retoma.now());
  v_all_slots int;
begin
  if exists (select from retoma.queue_samples where at = v_at) then
    return false;
  end if;
  delete from retoma.queue_samples where at < v_at - interval '1 day';
  select coalesce(sum(w.concurrency), 0)
    into v_all_slots
    from retoma.workers w
   where w.ended_at is null and w.heartbeat_at >= retoma.now() - coalesce(w.heartbeat_timeout, p_heartbeat_timeout);
  insert into retoma.queue_samples (at, queue, ready, delayed, running, all_slots, slots)
  select v_at, q.queue, coalesce(sum(j.jobs) filter (where j.state = 'ready'), 0), coalesce(sum(j.jobs) filter (where j.state = 'delayed'), 0),
         coalesce(sum(j.jobs) filter (where j.state = 'running'), 0), v_all_slots,
         (select coalesce(sum(w.concurrency), 0)
            from retoma.workers w
           where w.ended_at is null and q.queue = any (w.queues)
             and w.heartbeat_at >= retoma.now() - coalesce(w.heartbeat_timeout, p_heartbeat_timeout))
    from (select s.queue from retoma.steps s union select unnest(w.queues) from retoma.workers w where w.ended_at is null) q
    left join retoma.jobs_by_queue(p_max_runs) j on j.queue = q.queue
   group by q.queue
   order by q.queue
   limit p_max_queues
      on conflict do nothing;  -- another process was faster
  return found;
end $$;
