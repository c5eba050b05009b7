-- Declare dead the workers that have not beaten for their own heartbeat timeout, and make what they ran ready again; those of an
-- earlier release have none, and `p_silence` counts. Any process may call it at any time; a worker's jobs go back once.
-- Only the time counts in which the caller could reach the database: the others may have been cut off together with it.
create or replace function retoma.sweep(p_silence interval, p_seen_for interval default null) returns table (worker int, jobs int)
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
       -- Nobody could beat while the server was down.
       and greatest(w.beat_at, pg_postmaster_start_time(), v_now - p_seen_for) < v_now - coalesce(w.silence, p_silence)
     order by w.id for update skip locked
  loop
    return query select v_dead, retoma.bury(v_dead, 'died', 'WORKER_DIED');
  end loop;
end $$;

-- End a worker: it can claim nothing any more, and what it still holds goes back. Gives how many jobs.
create or replace function retoma.bury(p_worker int, p_outcome text, p_code text) returns int
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_back record;
begin
  -- A call of this worker that is under way ends first; a later one finds no lane.
  delete from retoma.lanes where worker = p_worker;
  update retoma.workers set ended_at = v_now where id = p_worker and ended_at is null;
  perform retoma.end_looks(v_now, p_worker, p_outcome = 'died');

  select back.*, h.run as runs into v_back
    from (select array_agg(run) as run, array_agg(step) as step, array_agg(item) as item, array_agg(revision) as revision,
                 array_agg(fence) as fence, array_agg(spent_ms) as spent_ms, count(*)::int as jobs
            from (select * from retoma.jobs_held(p_worker) order by run, step, item, revision) held) h,
         lateral retoma.set_back(
           p_worker, v_now, h.run, h.step, h.item, h.revision, h.fence,
           retoma.outcomes_that_count(h.run, h.step, h.item, h.revision, array_fill(p_outcome, array[h.jobs])),
           array_fill(interval '0', array[h.jobs]), h.spent_ms, array_fill(p_code, array[h.jobs]),
           array_fill(json_build_object('code', p_code, 'message', retoma.why_buried(p_code)), array[h.jobs])) back
   where h.jobs > 0;
  if v_back.o_motions is not null or v_back.o_failed is not null then
    perform retoma.settle(v_now, v_back.o_motions, v_back.o_failed);
  end if;
  if v_back.o_stopping is not null then
    perform retoma.close_runs(v_now, v_back.o_stopping);
  end if;
  perform retoma.restate(v_back.runs);
  return coalesce(v_back.o_accepted, 0);
end $$;

-- End the open runs in which nothing lives any more, whatever went wrong before: their last job and their end belong to one
-- transaction, so that there should be none. The first `p_limit` after `p_after` are looked at. Gives which were ended, and
-- the last one that was looked at, null after the last of all.
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
  select array_agg(r.id) filter (where r.state <> 'pending' and not retoma.has_life(r.id)),
         case when count(*) = p_limit then (array_agg(r.id order by r.id desc))[1] end
    into v_dead, o_last
    from (select id, state from retoma.runs where ended_at is null and (p_after is null or id > p_after) order by id limit p_limit) r;
  foreach v_run in array coalesce(v_dead, '{}') loop
    if retoma.repair_run(v_run) then
      o_ended := o_ended || v_run;
    end if;
  end loop;
end $$;

-- Whether a run has a job that may still do something. One that waits does nothing without the others.
create or replace function retoma.has_life(p_run uuid) returns boolean stable language plpgsql as $$
begin
  return exists (select from retoma.jobs j where j.run = p_run and j.state in ('ready', 'running', 'parked'));
end $$;

create or replace function retoma.repair_run(p_run uuid) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.locked_live(p_run, null);
  v_ends_as retoma.run_state := coalesce(v_run.ends_as, 'failed');
begin
  if v_run.ended_at is not null or v_run.state = 'pending' or retoma.has_life(p_run) then
    return false;
  end if;
  -- It has all that it was for if each of its last steps has a result, or was left out.
  if v_run.ends_as is null and not exists (
      select from retoma.edges g
        left join retoma.standing(p_run) s on s.step = g.from_step
       where g.version = v_run.version and g.act = 'end' and (s.state in ('succeeded', 'skipped')) is not true) then
    v_ends_as := 'completed';
  end if;
  perform retoma.halt(v_now, array[p_run], v_ends_as);
  insert into retoma.events (run, at, revision, kind, step, item, data)
  select id, v_now, revision, 'failure', '', '',
         json_build_object('code', 'NOTHING_LIVES', 'message', 'nothing of this run was running or to come, and it had not ended: it was ended by maintenance')
    from retoma.runs where id = p_run and v_ends_as = 'failed';
  perform retoma.close_runs(v_now, array[p_run]);
  return true;
end $$;

-- What the events of its jobs say.
create or replace function retoma.why_buried(p_code text) returns text immutable language sql as $$
  select case p_code
           when 'WORKER_DIED' then 'its worker died, or could not reach the database for too long'
           when 'BLOCKED_LOOP' then 'a step blocked the event loop of its worker: make that step a plain def'
           when 'INTERRUPTED' then 'its worker was stopped'
         end;
$$;

-- Make delayed jobs claimable whose time has come, the runs running that waited for it, and pools open whose pause is
-- over; attend to the reviews whose time has come. Gives how many, when the next is due, and when somebody should look at outside work
-- and at runs that may be stuck.
create or replace function retoma.promote(p_limit int, out promoted int, out next_at timestamptz, out look_at timestamptz,
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
  select count(*), array_agg(distinct run) into promoted, v_runs from due;
  if promoted > 0 then
    update retoma.runs set state = 'running' where id = any (v_runs) and state = 'pending';
  end if;
  if exists (select from retoma.reviews v where v.next_at <= v_now) then
    promoted := promoted + retoma.attend_reviews(p_limit);
  end if;
  -- Pools last: who holds them waits for no job.
  if exists (select from retoma.pools where paused_until <= v_now or open_until <= v_now) then
    perform retoma.lock_pools();
    update retoma.pools
       set paused_until = case when paused_until > v_now then paused_until end,
           open_until = case when open_until > v_now then open_until end
     where paused_until <= v_now or open_until <= v_now;
    promoted := promoted + 1;
  end if;
  select least((select min(ready_at) from retoma.jobs where ready_at is not null),
               (select min(least(paused_until, open_until)) from retoma.pools),
               (select min(v.next_at) from retoma.reviews v where v.next_at is not null)),
         (select min(o.next_at) from retoma.outside o where o.ended_at is null),
         (select min(r.watch_at) from retoma.runs r where r.ended_at is null)
    into next_at, look_at, watch_at;
end $$;
