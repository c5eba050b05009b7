-- Declare workers dead that sent no heartbeat within their own timeout, and release their jobs. `p_heartbeat_timeout` applies
-- to workers without one. Any process may call it at any time; a worker's jobs are released once. Only the time counts in which
-- the caller could reach the database: the workers may have been cut off together with it.
create or replace function retoma.reap_dead_workers(p_heartbeat_timeout interval, p_reachable_for interval default null) returns table (worker int, jobs int)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := retoma.now();
  v_dead int;
begin
  for v_dead in
    select w.id from retoma.workers w
     where w.ended_at is null
       -- No worker could send a heartbeat while the server was down.
       and greatest(w.heartbeat_at, pg_postmaster_start_time(), v_now - p_reachable_for) < v_now - coalesce(w.heartbeat_timeout, p_heartbeat_timeout)
     order by w.id for update skip locked
  loop
    return query select v_dead, retoma.deregister_worker(v_dead, 'died', 'WORKER_DIED');
  end loop;
end $$;

-- End a worker: it can claim nothing more, and the jobs that it still holds are released. Returns how many.
create or replace function retoma.deregister_worker(p_worker int, p_outcome text, p_code text) returns int
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_outcomes record;
begin
  -- A call of this worker in progress ends first. A later one finds no link.
  delete from retoma.worker_links where worker = p_worker;
  delete from retoma.worker_stacks where worker = p_worker;
  update retoma.workers set ended_at = v_now where id = p_worker and ended_at is null;
  perform retoma.end_worker_polls(v_now, p_worker, p_outcome = 'died');

  select recorded.*, h.run as runs into v_outcomes
    from (select array_agg(run) as run, array_agg(step) as step, array_agg(item) as item, array_agg(revision) as revision,
                 array_agg(fence) as fence, array_agg(spent_ms) as spent_ms, count(*)::int as jobs
            from (select * from retoma.running_jobs_of_worker(p_worker) order by run, step, item, revision) held) h,
         lateral retoma.record_outcomes(
           p_worker, v_now, h.run, h.step, h.item, h.revision, h.fence,
           retoma.resolve_outcomes(h.run, h.step, h.item, h.revision, array_fill(p_outcome, array[h.jobs])),
           array_fill(interval '0', array[h.jobs]), h.spent_ms, array_fill(p_code, array[h.jobs]),
           -- The fencing token identifies the attempt in the trace of its run, where nobody else reports it.
           array(select json_build_object('code', p_code, 'message', retoma.deregistration_message(p_code), 'fence', f.fence)
                   from unnest(h.fence) with ordinality as f (fence, ordinal)
                  order by f.ordinal)) recorded
   where h.jobs > 0;
  if v_outcomes.o_events is not null or v_outcomes.o_failed is not null then
    perform retoma.propagate(v_now, v_outcomes.o_events, v_outcomes.o_failed);
  end if;
  perform retoma.refresh_after_outcomes(v_now, v_outcomes.runs, v_outcomes.o_stopping);
  return coalesce(v_outcomes.o_accepted, 0);
end $$;

-- What the events of its jobs say.
create or replace function retoma.deregistration_message(p_code text) returns text immutable language sql as $$
  select case p_code
           when 'WORKER_DIED' then 'its worker died or could not reach the database for too long'
           when 'BLOCKED_LOOP' then 'a step blocked the event loop of its worker: make that step a plain def'
           when 'INTERRUPTED' then 'its worker was stopped'
         end;
$$;

-- Let a worker claim nothing more. It ends when its jobs have ended. Returns whether it is running.
create or replace function retoma.request_drain(p_worker int, p_by text) returns boolean language sql as $$
  -- The links first, as in every call of the worker.
  update retoma.worker_links set is_draining = true where worker = p_worker;
  update retoma.workers
     set drain_requested_at = coalesce(drain_requested_at, retoma.now()), drain_requested_by = coalesce(drain_requested_by, p_by)
   where id = p_worker and ended_at is null
  returning true;
$$;
