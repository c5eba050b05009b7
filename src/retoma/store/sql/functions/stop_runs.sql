-- Start nothing more in these runs: running jobs may end, all others are cancelled, except those that leave something behind that
-- a worker can look for: these are parked until it is found and ended. The caller holds the runs' locks (`lock_runs`) and refreshes their states.
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
      perform retoma.abandon_effects(p_now, p_now, array_agg((j.run, j.step, j.item, j.revision)::retoma.job_key))
         from retoma.jobs j where j.run = any (p_runs) and j.state = 'ready' and not j.stopping;
      update retoma.jobs j set state = 'parked', stopping = true, worker = 0, pool = null, ready_at = null
       where j.run = any (p_runs) and j.state = 'ready' and not j.stopping and retoma.is_looked_for(j);
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

  -- With `ended_at is null`, a planner that thinks there are few open runs would read all of them.
  update retoma.runs set final_state = p_final_state where id = any (p_runs) and not retoma.is_final(state);
end $$;

-- Cancel a run, once for each key. Returns its state afterwards, or null if the tenant has no such run.
create or replace function retoma.cancel_run(p_run uuid, p_tenant int, p_by text, p_action_key jsonb default '{}') returns text
language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_run, p_tenant, p_action_key, p_lock_jobs => false);
begin
  if v_action.is_over then
    return v_action.answer ->> 'state';
  elsif not retoma.is_final((v_action.run).state) and (v_action.run).state <> 'cancelling' then
    perform retoma.stop_runs(v_action.at, array[p_run], 'cancelled');
    perform retoma.log_action(v_action.at, p_run, revision, p_by, '{"action": "cancel"}')
       from retoma.runs where id = p_run;
    perform retoma.refresh_run_state(v_action.at, array[p_run]);
  end if;
  return retoma.record_answer(p_run, p_action_key, jsonb_build_object('state', r.state)) ->> 'state' from retoma.runs r where r.id = p_run;
end $$;
