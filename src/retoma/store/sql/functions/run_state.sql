-- The state of a run is derived from facts by the rules of `derive_run_state`, and written in three places: `refresh_run_state`,
-- which everything that changes a run calls, and the hot path, which knows the result without looking (`start_runs` inserts
-- 'pending' or 'running', `complete_runs` ends a run whose last sink is final). Tests compare the two, and find other writers.

-- The state of a run by its facts, whatever its state is now. The first rule that applies decides.
create or replace function retoma.derive_run_state(p_run retoma.runs) returns retoma.run_state stable language plpgsql as $$
begin
  return case
    -- It was stopped, or only some of its jobs ran again: it ends as decided then, once nothing is active.
    when p_run.final_state is not null and not retoma.has_active_jobs(p_run.id) then
      case when p_run.final_state = 'completed' then retoma.completed_state(p_run.id) else p_run.final_state end
    when p_run.final_state = 'cancelled' then 'cancelling'
    -- Everything that it was started for is final.
    when p_run.final_state is null and p_run.open_sinks = 0 then retoma.completed_state(p_run.id)
    when exists (select from retoma.stuck_runs s where s.run = p_run.id and s.resumed_at is null) then 'stuck'
    when retoma.can_progress(p_run) then 'running'
    -- Its first jobs are delayed until its start.
    when exists (select from retoma.jobs j where j.run = p_run.id and j.ready_at = p_run.run_at) then 'pending'
    when exists (select from retoma.reviews v where v.run = p_run.id and v.applied_at is null and not v.planned) then 'needs_review'
    when exists (select from retoma.reviews v where v.run = p_run.id and v.applied_at is null) then 'paused'
    -- External work is being cancelled, or its jobs are lost: then maintenance ends it (`repair_runs`).
    else 'running'
  end::retoma.run_state;
end $$;

-- Whether a run has a job that can still progress. A waiting job cannot without the others.
create or replace function retoma.has_active_jobs(p_run uuid) returns boolean stable language plpgsql as $$
begin
  return exists (select from retoma.jobs j where j.run = p_run and j.state in ('ready', 'running', 'parked'));
end $$;

-- Whether a run can progress without a person, now or after a delay. Jobs before their start and work that is being cancelled do
-- not count.
create or replace function retoma.can_progress(p_run retoma.runs) returns boolean stable language plpgsql as $$
begin
  return exists (
    select from retoma.jobs j
     where j.run = p_run.id and (j.state in ('ready', 'running') or j.state = 'parked' and not j.stopping)
       and j.ready_at is distinct from p_run.run_at
       and not exists (select from retoma.reviews v
                        where v.run = j.run and v.step = j.step and v.item = j.item and v.revision = j.revision
                          and v.applied_at is null));
end $$;

-- It has errors if a job failed and no person has resolved it.
create or replace function retoma.completed_state(p_run uuid) returns retoma.run_state stable language plpgsql as $$
begin
  return case when exists (select from retoma.current_jobs(p_run) s
                            where s.state in ('failed', 'quarantined') and not retoma.is_resolved_by_person(s))
              then 'completed_with_errors' else 'completed' end;
end $$;

-- Write the states of runs whose facts have changed, and what follows from them: when a run ends, its event, its deliveries and its
-- notifications.
create or replace function retoma.refresh_run_state(p_now timestamptz, p_runs uuid[]) returns void language plpgsql as $$
declare
  v_ended uuid[];
begin
  -- The last two jobs of a run may end at once: the lock lets the second see the first.
  perform from retoma.runs where id = any (p_runs) order by id for update;
  with derived as materialized (
    select r.id, r.state as before, retoma.derive_run_state(r) as after from retoma.runs r where r.id = any (p_runs)
  ), changed as (
    update retoma.runs r
       set state = d.after,
           ended_at = case when e.ends then p_now when retoma.is_final(d.after) then r.ended_at end,
           watch_at = case when d.after = 'running' then retoma.next_watch_at(r, p_now + v.stuck_after) else r.watch_at end
      from derived d
     -- An edit changes how a completed run had ended; a failed run whose results are now complete ends again.
     cross join lateral (select retoma.is_final(d.after) and (d.before = 'failed' or not retoma.is_final(d.before)) as ends) e,
           retoma.versions v
     where r.id = d.id and v.id = r.version and d.after <> d.before
    returning r.id, r.revision, r.state, e.ends
  ), logged as (
    insert into retoma.events (run, at, revision, kind, data)
    select c.id, p_now, c.revision, 'end', json_build_object('state', c.state) from changed c where c.ends
    returning run
  )
  select array_agg(run) into v_ended from logged;
  perform retoma.enqueue_deliveries(p_now, array_agg(r.id), 'run.' || r.state)
     from retoma.runs r
    where r.id = any (v_ended) and retoma.has_subscribers(r.id)
    group by r.state;
  perform retoma.notify_of_runs(p_now, array_agg(r.id order by r.id), 'run.failed')
     from retoma.runs r
    where r.id = any (v_ended) and r.state = 'failed'
   having count(*) > 0;
end $$;

-- The same after jobs of these runs have ended: most of them are neither stopping (`p_stopping`) nor have reviews, and need
-- nothing.
create or replace function retoma.refresh_after_outcomes(p_now timestamptz, p_runs uuid[], p_stopping uuid[]) returns void language plpgsql as $$
declare
  v_runs uuid[] := p_stopping || array(select v.run from retoma.reviews v where v.run = any (p_runs) and v.applied_at is null);
begin
  if v_runs <> '{}' then
    perform retoma.refresh_run_state(p_now, v_runs);
  end if;
end $$;

-- Whether a run in this state has ended. The constraint `ended_at_is_set_when_final` of runs lists the same states.
create or replace function retoma.is_final(p_state retoma.run_state) returns boolean immutable language sql as $$
  select p_state in ('completed', 'completed_with_errors', 'failed', 'rejected', 'cancelled');
$$;

-- Whether a run in this state runs, or may run again.
create or replace function retoma.can_run(p_state retoma.run_state) returns boolean stable language sql as $$
  select p_state = 'running'
      or exists (select from retoma.transitions t where t.entity = 'run' and t.from_state = p_state::text and t.to_state = 'running');
$$;

-- Whether a run is in this part of a filtered list: null means any. Inlined.
create or replace function retoma.matches_filter(p_run retoma.runs, p_tenant int, p_states text[], p_before uuid, p_first uuid) returns boolean
stable language sql as $$
  select (p_tenant is null or p_run.tenant = p_tenant) and (p_states is null or p_run.state::text = any (p_states))
     and (p_before is null or p_run.id < p_before) and (p_first is null or p_run.id >= p_first);
$$;
