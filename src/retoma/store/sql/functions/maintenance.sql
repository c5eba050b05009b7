-- Declare workers dead that sent no heartbeat within their own timeout, and release their jobs. `p_heartbeat_timeout` applies
-- to workers without one. Any process may call it at any time; a worker's jobs are released once. Only the time counts in which
-- the caller could reach the database: the workers may have been cut off together with it.
create or replace function retoma.reap_dead_workers(p_heartbeat_timeout interval, p_reachable_for interval default null) returns table (worker int, jobs int)
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
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
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_outcomes record;
begin
  -- A call of this worker in progress ends first. A later one finds no link.
  delete from retoma.worker_links where worker = p_worker;
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
           array_fill(json_build_object('code', p_code, 'message', retoma.deregistration_message(p_code)), array[h.jobs])) recorded
   where h.jobs > 0;
  if v_outcomes.o_events is not null or v_outcomes.o_failed is not null then
    perform retoma.propagate(v_now, v_outcomes.o_events, v_outcomes.o_failed);
  end if;
  if v_outcomes.o_stopping is not null then
    perform retoma.close_stopped_runs(v_now, v_outcomes.o_stopping);
  end if;
  perform retoma.refresh_run_state(v_outcomes.runs);
  return coalesce(v_outcomes.o_accepted, 0);
end $$;

-- End open runs without active jobs, whatever went wrong before: a run's last job and its end belong to one transaction, so
-- there should be none. Checks the first `p_limit` after `p_after`. Returns the runs that were ended, and the last one checked,
-- null after the last of all.
create or replace function retoma.repair_runs(p_after uuid, p_limit int, out o_ended uuid[], out o_last uuid)
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_dead uuid[];
  v_run uuid;
begin
  select array_agg(r.id) filter (where r.state <> 'pending' and not retoma.has_active_jobs(r.id)),
         case when count(*) = p_limit then (array_agg(r.id order by r.id desc))[1] end
    into v_dead, o_last
    from (select id, state from retoma.runs where ended_at is null and (p_after is null or id > p_after) order by id limit p_limit) r;
  foreach v_run in array coalesce(v_dead, '{}') loop
    if retoma.repair_run(v_run) then
      o_ended := o_ended || v_run;
    end if;
  end loop;
end $$;

-- Whether a run has a job that can still progress. A waiting job cannot without the others.
create or replace function retoma.has_active_jobs(p_run uuid) returns boolean stable language plpgsql as $$
begin
  return exists (select from retoma.jobs j where j.run = p_run and j.state in ('ready', 'running', 'parked'));
end $$;

create or replace function retoma.repair_run(p_run uuid) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.lock_run_for_action(p_run, null);
  v_final_state retoma.run_state := coalesce(v_run.final_state, 'failed');
begin
  if v_run.ended_at is not null or v_run.state = 'pending' or retoma.has_active_jobs(p_run) then
    return false;
  end if;
  -- It is complete if each of its last steps has a result or was skipped.
  if v_run.final_state is null and not exists (
      select from retoma.edges g
        left join retoma.current_jobs(p_run) s on s.step = g.from_step
       where g.version = v_run.version and g.edge_kind = 'end' and (s.state in ('succeeded', 'skipped')) is not true) then
    v_final_state := 'completed';
  end if;
  perform retoma.stop_runs(v_now, array[p_run], v_final_state);
  insert into retoma.events (run, at, revision, kind, step, item, data)
  select id, v_now, revision, 'failure', '', '',
         json_build_object('code', 'NO_ACTIVE_JOBS', 'message', 'the run had no active jobs but had not ended: maintenance ended it')
    from retoma.runs where id = p_run and v_final_state = 'failed';
  perform retoma.close_stopped_runs(v_now, array[p_run]);
  return true;
end $$;

-- What the events of its jobs say.
create or replace function retoma.deregistration_message(p_code text) returns text immutable language sql as $$
  select case p_code
           when 'WORKER_DIED' then 'its worker died or could not reach the database for too long'
           when 'BLOCKED_LOOP' then 'a step blocked the event loop of its worker: make that step a plain def'
           when 'INTERRUPTED' then 'its worker was stopped'
         end;
$$;

-- Release delayed jobs that are due, start the runs that waited for them, reopen pools whose pause is over, and process due
-- reviews. Returns how many, when the next is due, and when to poll external work and to check runs for progress.
create or replace function retoma.release_due_jobs(p_limit int, out released int, out next_at timestamptz, out poll_at timestamptz,
  out watch_at timestamptz)
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_runs uuid[];
begin
  with due as (
    update retoma.jobs j set ready_at = null
     where j.ctid = any (array(
       select c.ctid from retoma.jobs c where c.ready_at <= v_now order by c.ready_at limit p_limit for update skip locked))
    returning j.run)
  select count(*), array_agg(distinct run) into released, v_runs from due;
  if released > 0 then
    update retoma.runs set state = 'running' where id = any (v_runs) and state = 'pending';
  end if;
  if exists (select from retoma.reviews v where v.next_at <= v_now) then
    released := released + retoma.process_due_reviews(p_limit);
  end if;
  -- Pools last: whoever holds them waits for no job.
  if exists (select from retoma.pools where paused_until <= v_now or open_until <= v_now) then
    perform retoma.lock_pools();
    update retoma.pools
       set paused_until = case when paused_until > v_now then paused_until end,
           open_until = case when open_until > v_now then open_until end
     where paused_until <= v_now or open_until <= v_now;
    released := released + 1;
  end if;
  select least((select min(ready_at) from retoma.jobs where ready_at is not null),
               (select min(least(paused_until, open_until)) from retoma.pools),
               (select min(v.next_at) from retoma.reviews v where v.next_at is not null)),
         (select min(o.next_at) from retoma.external_work o where o.ended_at is null),
         (select min(r.watch_at) from retoma.runs r where r.ended_at is null)
    into next_at, poll_at, watch_at;
end $$;
