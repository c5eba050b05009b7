-- Start nothing more in these runs: running jobs may end, all others are cancelled, except those that may have external work:
-- these are retried, to find and end it. The caller holds the runs' locks (`lock_runs`) and closes them (`close_stopped_runs`).
create or replace function retoma.stop_runs(p_now timestamptz, p_runs uuid[], p_final_state retoma.run_state)
returns void language plpgsql as $$
begin
  -- Another transaction may be claiming a job or creating its successor. Locking the job waits for that commit, and only a new
  -- query shows what it left: repeat until nothing is left.
  while exists (select from retoma.jobs
                 where run = any (p_runs) and state in ('waiting', 'ready', 'running', 'parked') and not stopping) loop
    -- First running and ready jobs, then those that wait for them, each by key, as transactions that end jobs do.
    perform from retoma.jobs
      where run = any (p_runs) and state in ('running', 'parked', 'ready') and not stopping
      order by run, step, item, revision for update;
    if exists (select from retoma.reviews v where v.run = any (p_runs)) then
      perform retoma.cancel_review_jobs(p_now, array_agg((j.run, j.step, j.item, j.revision)::retoma.job_key), 'RUN_STOPPED')
         from retoma.jobs j where j.run = any (p_runs) and j.state = 'parked' and retoma.waits_for_review(j);
    end if;
    update retoma.jobs set stopping = true
     where run = any (p_runs) and state in ('running', 'parked') and not stopping;
    perform from retoma.jobs
      where run = any (p_runs) and state = 'waiting' and not stopping
      order by run, step, item, revision for update;
    if exists (select from retoma.effects e where e.run = any (p_runs)) then
      update retoma.jobs j set stopping = true, pool = null, ready_at = null
       where j.run = any (p_runs) and j.state = 'ready' and not j.stopping and retoma.may_have_unwatched_external_work(j, p_now);
    end if;
    update retoma.jobs set state = 'cancelled', worker = 0, ready_at = null, ended_at = p_now, code = 'RUN_STOPPED'
     where run = any (p_runs) and state in ('waiting', 'ready') and not stopping;
  end loop;
  if exists (select from retoma.holdings h where h.run = any (p_runs)) then
    perform retoma.release_slots(array_agg((j.run, j.step, j.item, j.revision)::retoma.job_key))
       from retoma.jobs j where j.run = any (p_runs) and j.state = 'cancelled';
  end if;
  -- The next poll cancels external work.
  update retoma.external_work set next_at = p_now where run = any (p_runs) and ended_at is null;

  update retoma.runs
     set final_state = p_final_state,
         state = case when p_final_state = 'cancelled' then 'cancelling' else state end
   where id = any (p_runs) and ended_at is null;
end $$;

-- End the stopping runs that have no active jobs.
create or replace function retoma.close_stopped_runs(p_now timestamptz, p_runs uuid[]) returns void language plpgsql as $$
declare
  v_closed uuid[];
begin
  -- The last two jobs of a run may end at once: the lock lets the second see the first.
  perform from retoma.runs where id = any (p_runs) order by id for update;
  with closed as (
    update retoma.runs r
       set state = case when r.final_state not in ('completed', 'completed_with_errors') then r.final_state
                        when retoma.has_unresolved_failures(r.id) then 'completed_with_errors' else 'completed' end::retoma.run_state,
           ended_at = p_now
     where r.id = any (p_runs) and r.final_state is not null and r.ended_at is null
       and not exists (select from retoma.jobs j where j.run = r.id and j.state in ('ready', 'running', 'parked'))
    returning r.id, r.revision, r.state
  ), logged as (
    insert into retoma.events (run, at, revision, kind, data)
    select id, p_now, revision, 'end', json_build_object('state', state) from closed
  )
  select array_agg(id) into v_closed from closed;
  perform retoma.enqueue_deliveries(p_now, array_agg(r.id), 'run.' || r.state)
     from retoma.runs r
    where r.id = any (v_closed) and retoma.has_subscribers(r.id)
    group by r.state;
end $$;

-- Whether a job failed and no person has resolved it.
create or replace function retoma.has_unresolved_failures(p_run uuid) returns boolean stable language plpgsql as $$
begin
  return exists (select from retoma.current_jobs(p_run) s where s.state in ('failed', 'quarantined') and not retoma.is_resolved_by_person(s));
end $$;

-- Cancel a run. Returns its state afterwards, or null if the tenant has no such run.
create or replace function retoma.cancel_run(p_run uuid, p_tenant int, p_by text) returns retoma.run_state
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_state retoma.run_state;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  select state into v_state
    from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant);
  if not found or v_state in ('completed', 'completed_with_errors', 'failed', 'rejected', 'cancelled', 'cancelling') then
    return v_state;
  end if;
  perform retoma.stop_runs(v_now, array[p_run], 'cancelled');
  insert into retoma.events (run, at, revision, kind, data)
  select id, v_now, revision, 'action', json_build_object('action', 'cancel', 'by', p_by)
    from retoma.runs where id = p_run and ended_at is null;
  perform retoma.close_stopped_runs(v_now, array[p_run]);
  select state into v_state from retoma.runs where id = p_run;
  return v_state;
end $$;
