-- The last event of a run that is progress: an attempt that is to be made again is none.
create or replace function retoma.last_progress(p_run uuid, out o_event bigint, out o_at timestamptz) stable language sql as $$
  select e.id, e.at from retoma.events e
   where e.run = p_run and e.kind in ('start', 'result', 'failure', 'act', 'end')
   order by e.id desc limit 1;
$$;

-- Runs that somebody should look at now, each given to one caller for a while. One that has progressed is only put off.
create or replace function retoma.watch_due(p_limit int, p_lease interval)
returns table (run uuid, version int, state text, revision int, seen bigint, still_for interval, stuck_after interval,
               may_resume int, cause text, resumes int, at timestamptz, is_overdue boolean)
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language sql as $$
  with clock as materialized (
    select retoma.now() as at
  ), due as materialized (
    select d.id, p.o_event, p.o_at, v.stuck_after, coalesce(d.resumes, v.resumes) as may_resume
      from retoma.runs d
      join retoma.versions v on v.id = d.version
     cross join lateral retoma.last_progress(d.id) p
     where d.watch_at <= (select c.at from clock c) and d.ended_at is null and d.state <> 'pending'
     order by d.watch_at limit p_limit for update of d skip locked
  ), taken as (
    update retoma.runs r
       set watch_at = retoma.watched_until(r, case when r.state = 'stuck' or d.o_at + d.stuck_after <= clock.at
                                                     or r.deadline_at <= clock.at then clock.at + p_lease
                                                   else d.o_at + d.stuck_after end)
      from due d, clock
     where r.id = d.id
    returning r.id, r.version, r.state, r.revision, d.o_event, clock.at - d.o_at as still_for, d.stuck_after, d.may_resume,
              clock.at, coalesce(r.deadline_at <= clock.at and r.ends_as is null, false) as is_overdue
  )
  select t.id, t.version, t.state::text, t.revision, t.o_event, t.still_for, t.stuck_after, t.may_resume, s.cause,
         coalesce(s.resumes, 0), t.at, t.is_overdue
    from taken t
    left join retoma.stuck s on s.run = t.id and s.seen = t.o_event
   where t.state = 'stuck' or t.still_for >= t.stuck_after or t.is_overdue;
$$;

-- Jobs of a run that are running, and whether they should have ended: beyond its timeout nobody waits for a job.
create or replace function retoma.running_of(p_run uuid, p_grace interval)
returns table (step text, item text, revision int, fence int, worker int, started_at timestamptz, is_overdue boolean)
stable language sql as $$
  select j.step, j.item, j.revision, j.fence, j.worker, j.started_at, j.started_at + s.timeout + p_grace <= retoma.now()
    from retoma.jobs j
    join retoma.steps s on s.version = j.version and s.step = j.step
   where j.run = p_run and j.state = 'running'
   order by j.started_at, j.step, j.item;
$$;

-- Note that a run does not progress, unless it has since `p_seen`. Somebody looks again after `p_pause`.
create or replace function retoma.mark_stuck(p_run uuid, p_seen bigint, p_cause text, p_data json, p_pause interval) returns boolean
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if p_seen <> (retoma.last_progress(p_run)).o_event then
    return false;
  end if;
  update retoma.runs r set state = 'stuck', watch_at = retoma.watched_until(r, v_now + p_pause)
   where id = p_run and state = 'running' and ends_as is null and ended_at is null;
  if not found then
    return false;
  end if;
  insert into retoma.stuck as s (run, since, cause, data, seen)
  values (p_run, v_now, p_cause, p_data, p_seen)
      on conflict (run) do update
     set since = excluded.since, cause = excluded.cause, data = excluded.data, seen = excluded.seen,
         resumes = case when s.seen = excluded.seen then s.resumes else 0 end;
  insert into retoma.events (run, at, revision, kind, step, item, data)
  select id, v_now, revision, 'stuck', p_data ->> 'step', p_data ->> 'item', p_data from retoma.runs where id = p_run;
  perform retoma.enqueue_announced(array[p_run]);
  perform retoma.enqueue_deliveries(v_now, array[p_run], 'run.stuck', p_data);
  return true;
end $$;

-- Let a stuck run go on: what it holds beyond its time runs again, elsewhere if need be. `p_automatic` counts; a person's
-- resume lets the counting begin anew. Gives the run's state afterwards, null if there is no such run.
create or replace function retoma.resume_run(
  p_run uuid, p_tenant int, p_by text, p_automatic boolean, p_pause interval, p_grace interval) returns retoma.run_state
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.locked_live(p_run, p_tenant);
  v_resumes int;
begin
  if v_run.state is distinct from 'stuck' then
    return v_run.state;
  end if;
  perform retoma.take_away(v_now, p_run, p_grace);
  update retoma.runs r set state = 'running', watch_at = retoma.watched_until(r, v_now + p_pause)
   where id = p_run and state = 'stuck';
  update retoma.stuck set resumes = case when p_automatic then resumes + 1 else 0 end where run = p_run
  returning resumes into v_resumes;
  insert into retoma.events (run, at, revision, kind, data)
  values (p_run, v_now, v_run.revision, 'resume', json_build_object('by', p_by, 'number', v_resumes));
  return (select state from retoma.runs where id = p_run);
end $$;

-- Give back the jobs of a run that are held beyond their time. Their holders' late results are refused.
create or replace function retoma.take_away(p_now timestamptz, p_run uuid, p_grace interval) returns void language plpgsql as $$
declare
  v_job record;
  v_back record;
begin
  for v_job in select * from retoma.running_of(p_run, p_grace) where is_overdue order by step, item loop
    v_back := retoma.set_back(
      v_job.worker, p_now, array[p_run], array[v_job.step], array[v_job.item], array[v_job.revision], array[v_job.fence],
      array['interrupted'], array[interval '0'], array[0], array['STUCK'],
      array[json_build_object('code', 'STUCK', 'message', 'it made no progress beyond its time')]);
  end loop;
end $$;

-- A run that progresses again, or whose cause has passed, is no longer stuck.
create or replace function retoma.clear_stuck(p_run uuid, p_pause interval) returns void language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  with cleared as (
    update retoma.runs r set state = 'running', watch_at = retoma.watched_until(r, v_now + p_pause)
     where id = p_run and state = 'stuck'
    returning id, revision
  )
  insert into retoma.events (run, at, revision, kind, data)
  select id, v_now, revision, 'resume', json_build_object('by', 'itself') from cleared;
  delete from retoma.stuck where run = p_run;
end $$;

-- A run that has not progressed after all its resumes fails. A person may still have it go on.
create or replace function retoma.give_up_run(p_run uuid, p_seen bigint, p_grace interval) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if p_seen <> (retoma.last_progress(p_run)).o_event
     or not exists (select from retoma.runs where id = p_run and state = 'stuck') then
    return false;
  end if;
  perform retoma.halt(v_now, array[p_run], 'failed');
  perform retoma.take_away(v_now, p_run, p_grace);
  perform retoma.close_runs(v_now, array[p_run]);
  return true;
end $$;

-- When to look at a run again: at this time, or before it if its deadline is nearer and yet to come.
create or replace function retoma.watched_until(p_run retoma.runs, p_at timestamptz) returns timestamptz stable language sql as $$
  select case when p_run.deadline_at > retoma.now() then least(p_at, p_run.deadline_at) else p_at end;
$$;

-- A run that is not over by its deadline fails: nothing new starts, and what goes on outside is cancelled there.
create or replace function retoma.expire_run(p_run uuid) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if not exists (select from retoma.runs where id = p_run and deadline_at <= v_now and ends_as is null and ended_at is null) then
    return false;
  end if;
  perform retoma.halt(v_now, array[p_run], 'failed');
  update retoma.jobs set code = 'DEADLINE' where run = p_run and state = 'cancelled' and ended_at = v_now;
  insert into retoma.events (run, at, revision, kind, step, item, data)
  select id, v_now, revision, 'failure', '', '',
         json_build_object('code', 'DEADLINE', 'message', 'it was not over by ' || to_char(deadline_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
    from retoma.runs where id = p_run;
  perform retoma.close_runs(v_now, array[p_run]);
  return true;
end $$;
