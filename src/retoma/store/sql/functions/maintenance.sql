-- End open runs without active jobs, whatever went wrong before: a run's last job and its end belong to one transaction, so
-- there should be none. Checks the first `p_limit` after `p_after`. Returns the runs that were ended, and the last one checked,
-- null after the last of all.
create or replace function retoma.repair_runs(p_after uuid, p_limit int, out o_ended uuid[], out o_last uuid)
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
  perform retoma.refresh_run_state(v_now, array[p_run]);
  return true;
end $$;

-- Release delayed jobs that are due, start the runs that waited for them, reopen pools whose pause is over, and process due
-- reviews. Returns how many, when the next is due, and when to poll external work or look for effects and to check runs for progress.
create or replace function retoma.release_due_jobs(p_limit int, out released int, out next_at timestamptz, out poll_at timestamptz,
  out watch_at timestamptz)
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
    perform retoma.refresh_run_state(v_now, array(select id from retoma.runs where id = any (v_runs) and state = 'pending'));
  end if;
  if exists (select from retoma.reviews v where v.next_at <= v_now) then
    released := released + retoma.process_due_reviews(p_limit);
  end if;
  -- Pools last: a transaction that holds them waits for no job.
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
               -- A job that waits for a budget is checked with every tick that finds it due: that alone is no work.
               (select min(v.next_at) from retoma.reviews v
                 where v.next_at is not null and (v.budget is null or v.state <> 'open'))),
         least((select min(o.next_at) from retoma.external_work o where o.ended_at is null and o.next_at < 'infinity'),
               (select min(e.next_at) from retoma.effects e where e.next_at is not null)),
         (select min(r.watch_at) from retoma.runs r where r.ended_at is null)
    into next_at, poll_at, watch_at;
end $$;
