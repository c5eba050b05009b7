-- The last event of a run that counts as progress. A retry does not.
create or replace function retoma.last_progress(p_run uuid, out o_event bigint, out o_at timestamptz) stable language sql as $$
  select e.id, e.at from retoma.events e
   where e.run = p_run and e.kind in ('start', 'result', 'failure', 'action', 'end')
   order by e.id desc limit 1;
$$;

-- Claim runs whose progress is due for a check, each for one caller for a while. A run that has progressed is only postponed.
create or replace function retoma.claim_runs_to_check(p_limit int, p_lease interval)
returns table (run uuid, version int, state text, revision int, last_progress_event bigint, still_for interval, stuck_after interval,
               max_resumes int, cause text, resumes int, at timestamptz, is_overdue boolean)
language sql as $$
  with clock as materialized (
    select retoma.now() as at
  ), due as materialized (
    select d.id, p.o_event, p.o_at, v.stuck_after, coalesce(d.resumes, v.resumes) as max_resumes
      from retoma.runs d
      join retoma.versions v on v.id = d.version
     cross join lateral retoma.last_progress(d.id) p
     where d.watch_at <= (select c.at from clock c) and d.ended_at is null and d.state <> 'pending'
     order by d.watch_at limit p_limit for update of d skip locked
  ), taken as (
    update retoma.runs r
       set watch_at = retoma.next_watch_at(r, case when r.state = 'stuck' or d.o_at + d.stuck_after <= clock.at
                                                     or r.deadline_at <= clock.at then clock.at + p_lease
                                                   else d.o_at + d.stuck_after end)
      from due d, clock
     where r.id = d.id
    returning r.id, r.version, r.state, r.revision, d.o_event, clock.at - d.o_at as still_for, d.stuck_after, d.max_resumes,
              clock.at, coalesce(r.deadline_at <= clock.at and r.final_state is null, false) as is_overdue
  )
  select t.id, t.version, t.state::text, t.revision, t.o_event, t.still_for, t.stuck_after, t.max_resumes, s.cause,
         coalesce(s.resumes, 0), t.at, t.is_overdue
    from taken t
    left join retoma.stuck_runs s on s.run = t.id and s.last_progress_event = t.o_event
   where t.state = 'stuck' or t.still_for >= t.stuck_after or t.is_overdue;
$$;

-- The running jobs of a run, and whether they should have ended: nobody waits for a job beyond its timeout.
create or replace function retoma.running_jobs_of_run(p_run uuid, p_grace interval)
returns table (step text, item text, revision int, fence int, worker int, started_at timestamptz, is_overdue boolean)
stable language sql as $$
  select j.step, j.item, j.revision, j.fence, j.worker, j.started_at, j.started_at + s.timeout + p_grace <= retoma.now()
    from retoma.jobs j
    join retoma.steps s on s.version = j.version and s.step = j.step
   where j.run = p_run and j.state = 'running'
   order by j.started_at, j.step, j.item;
$$;

-- Mark a run as stuck, unless it has progressed since `p_last_progress_event`. The next check is after `p_pause`.
create or replace function retoma.mark_stuck(p_run uuid, p_last_progress_event bigint, p_cause text, p_data json, p_pause interval) returns boolean
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if p_last_progress_event <> (retoma.last_progress(p_run)).o_event then
    return false;
  end if;
  perform from retoma.runs where id = p_run and state = 'running' and final_state is null for update;
  if not found then
    return false;
  end if;
  insert into retoma.stuck_runs as s (run, since, cause, data, last_progress_event)
  values (p_run, v_now, p_cause, p_data, p_last_progress_event)
      on conflict (run) do update
     set since = excluded.since, cause = excluded.cause, data = excluded.data, last_progress_event = excluded.last_progress_event,
         resumes = case when s.last_progress_event = excluded.last_progress_event then s.resumes else 0 end, resumed_at = null;
  perform retoma.refresh_run_state(v_now, array[p_run]);
  perform retoma.postpone_check(p_run, v_now + p_pause);
  insert into retoma.events (run, at, revision, kind, step, item, data)
  select id, v_now, revision, 'stuck', p_data ->> 'step', p_data ->> 'item', p_data from retoma.runs where id = p_run;
  perform retoma.enqueue_pending_events(array[p_run]);
  perform retoma.insert_deliveries(v_now, array[p_run], 'run.stuck', p_data);
  perform retoma.notify_of_runs(v_now, array[p_run], 'run.stuck', p_data);
  return true;
end $$;

-- Resume a stuck run: jobs that are held beyond their timeout run again, on another worker if need be. `p_automatic` resumes
-- are counted; a person's resume resets the count. Returns the run's state afterwards, null if there is no such run.
create or replace function retoma.resume_run(
  p_run uuid, p_tenant int, p_by text, p_automatic boolean, p_pause interval, p_grace interval) returns retoma.run_state
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.lock_run_for_action(p_run, p_tenant);
  v_resumes int;
begin
  if v_run.state is distinct from 'stuck' then
    return v_run.state;
  end if;
  perform retoma.release_overdue_jobs(v_now, p_run, p_grace);
  update retoma.stuck_runs set resumes = case when p_automatic then resumes + 1 else 0 end, resumed_at = v_now where run = p_run
  returning resumes into v_resumes;
  perform retoma.refresh_run_state(v_now, array[p_run]);
  perform retoma.postpone_check(p_run, v_now + p_pause);
  insert into retoma.events (run, at, revision, kind, data)
  values (p_run, v_now, v_run.revision, 'resume', json_build_object('by', p_by, 'number', v_resumes));
  return (select state from retoma.runs where id = p_run);
end $$;

-- Release the jobs of a run that are held beyond their timeout. Late results of their holders are refused.
create or replace function retoma.release_overdue_jobs(p_now timestamptz, p_run uuid, p_grace interval) returns void language plpgsql as $$
declare
  v_job record;
  v_outcomes record;
begin
  for v_job in select * from retoma.running_jobs_of_run(p_run, p_grace) where is_overdue order by step, item loop
    v_outcomes := retoma.record_outcomes(
      v_job.worker, p_now, array[p_run], array[v_job.step], array[v_job.item], array[v_job.revision], array[v_job.fence],
      array['interrupted'], array[interval '0'], array[0], array['STUCK'],
      array[json_build_object('code', 'STUCK', 'message', 'the job made no progress within its time limit')]);
  end loop;
end $$;

-- A run that progresses again, or whose cause is gone, is no longer stuck.
create or replace function retoma.clear_stuck(p_run uuid, p_pause interval) returns void language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  perform from retoma.runs where id = p_run and state = 'stuck' for update;
  if found then
    insert into retoma.events (run, at, revision, kind, data)
    select id, v_now, revision, 'resume', json_build_object('by', 'itself') from retoma.runs where id = p_run;
  end if;
  delete from retoma.stuck_runs where run = p_run;
  perform retoma.refresh_run_state(v_now, array[p_run]);
  perform retoma.postpone_check(p_run, v_now + p_pause);
end $$;

-- Fail a run that has not progressed after all its resumes. A person may still rerun it.
create or replace function retoma.fail_stuck_run(p_run uuid, p_last_progress_event bigint, p_grace interval) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if p_last_progress_event <> (retoma.last_progress(p_run)).o_event
     or not exists (select from retoma.runs where id = p_run and state = 'stuck') then
    return false;
  end if;
  perform retoma.stop_runs(v_now, array[p_run], 'failed');
  perform retoma.release_overdue_jobs(v_now, p_run, p_grace);
  perform retoma.refresh_run_state(v_now, array[p_run]);
  return true;
end $$;

-- When to check a run again: at this time, or at its deadline if that is sooner and still ahead.
create or replace function retoma.next_watch_at(p_run retoma.runs, p_at timestamptz) returns timestamptz stable language sql as $$
  select case when p_run.deadline_at > retoma.now() then least(p_at, p_run.deadline_at) else p_at end;
$$;

create or replace function retoma.postpone_check(p_run uuid, p_at timestamptz) returns void language sql as $$
  update retoma.runs r set watch_at = retoma.next_watch_at(r, p_at) where id = p_run and ended_at is null;
$$;

-- Fail a run that has not ended by its deadline: nothing new starts, and external work is cancelled.
create or replace function retoma.fail_overdue_run(p_run uuid) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if not exists (select from retoma.runs where id = p_run and deadline_at <= v_now and final_state is null and ended_at is null) then
    return false;
  end if;
  perform retoma.stop_runs(v_now, array[p_run], 'failed');
  update retoma.jobs set code = 'DEADLINE' where run = p_run and state = 'cancelled' and ended_at = v_now;
  insert into retoma.events (run, at, revision, kind, step, item, data)
  select id, v_now, revision, 'failure', '', '',
         json_build_object('code', 'DEADLINE', 'message', 'the run was not over by its deadline, ' || to_char(deadline_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
    from retoma.runs where id = p_run;
  perform retoma.refresh_run_state(v_now, array[p_run]);
  return true;
end $$;

-- Resume a stuck run, or rerun what a failed run lacks, once for each key. Returns the state that the first call returned, and
-- whether it did anything.
create or replace function retoma.resume_once(p_run uuid, p_tenant int, p_by text, p_pause interval, p_grace interval, p_action_key jsonb)
returns jsonb language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_run, p_tenant, p_action_key);
  v_state text;
begin
  if v_action.is_over then
    return v_action.answer;
  end if;
  v_state := retoma.resume_run(p_run, p_tenant, p_by, false, p_pause, p_grace);
  if v_state = 'failed' then
    perform retoma.rerun_failed(p_run, p_tenant, p_by, null, null, p_action_key || jsonb_build_object('key', 'resume ' || (p_action_key ->> 'key')));
    select state into v_state from retoma.runs where id = p_run;
  elsif (v_action.run).ended_at is not null or (v_action.run).state = 'cancelling' then
    return jsonb_build_object('state', v_state, 'done', false);
  end if;
  return retoma.record_answer(p_run, p_action_key, jsonb_build_object('state', v_state, 'done', true));
end $$;
