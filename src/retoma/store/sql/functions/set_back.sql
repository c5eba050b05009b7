create or replace function retoma.state_after(p_outcome text, p_job retoma.jobs, p_now timestamptz) returns retoma.job_state
stable language sql as $$
  select case
           when p_outcome in ('failed', 'skipped', 'parked') then p_outcome
           when p_outcome = 'stopped' then 'cancelled'
           when p_outcome = 'review' then case when p_job.ending then 'cancelled' else 'parked' end
           when p_outcome = 'crashed_for_good' then case when p_job.crashes >= 2 then 'quarantined' else 'failed' end
           when p_job.ending and not retoma.may_go_on_outside(p_job, p_now) then 'cancelled'
           when p_outcome = 'died' and p_job.deaths >= 2 or p_outcome = 'crashed' and p_job.crashes >= 2 then 'quarantined'
           else 'ready'
         end::retoma.job_state;
$$;

-- The pool of which a job needs slots before it can begin again. Null if it needs none, or if it keeps those that it has.
create or replace function retoma.pool_after(p_outcome text, p_job retoma.jobs, p_state retoma.job_state) returns text
stable language plpgsql as $$
declare
  v_external text;
  v_pool text;
begin
  if p_state <> 'ready' then
    return p_job.pool;
  end if;
  select pool into v_pool from retoma.steps where version = p_job.version and step = p_job.step;
  if v_pool is null or p_job.ending then
    return null;
  end if;
  select o.state into v_external from retoma.outside o
   where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision;
  if found then
    -- Only a retry of failed external work submits again.
    return case when v_external in ('failed', 'cancelled', 'lost') and p_outcome in ('retry', 'crashed', 'wait') then v_pool end;
  end if;
  return case when not retoma.may_be_submitted(p_outcome, p_job) then v_pool end;
end $$;

-- Whether a job that goes back without external work on record may have submitted some, which then uses its slots.
-- After a death, or if the step is known to park, every part that began may be the submission; otherwise only one that
-- can be looked up and whose outcome is unknown.
create or replace function retoma.may_be_submitted(p_outcome text, p_job retoma.jobs) returns boolean stable language sql as $$
  select exists (select from retoma.effects e
                  where e.run = p_job.run and e.step = p_job.step and e.item = p_job.item and e.revision = p_job.revision
                    -- One that asks to wait needs slots again, so that its pool's breaker holds it.
                    and p_outcome <> 'wait'
                    and (p_outcome = 'died' or e.findable and e.done_at is null or retoma.parks(p_job.version, p_job.step)));
$$;

-- The outcomes, where no other try is made of what was retried as often as its run allows.
create or replace function retoma.within_retries(p_run uuid[], p_step text[], p_item text[], p_revision int[], p_outcome text[])
returns text[] stable language sql as $$
  select case when not exists (select from retoma.runs r where r.id = any (p_run) and r.retries is not null) then p_outcome else
    array(select case when o.outcome in ('retry', 'crashed') and j.failures >= r.retries
                      then case o.outcome when 'retry' then 'failed' else 'crashed_for_good' end
                      else o.outcome end
            from unnest(p_run, p_step, p_item, p_revision, p_outcome)
                 with ordinality as o (run, step, item, revision, outcome, place)
            left join retoma.runs r on r.id = o.run
            left join retoma.jobs j on j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
           order by o.place) end;
$$;

-- The outcomes, where a person is asked in place of a failure.
create or replace function retoma.with_help(p_run uuid[], p_step text[], p_item text[], p_revision int[], p_outcome text[])
returns text[] stable language sql as $$
  select case when not p_outcome && '{failed, crashed, crashed_for_good, died}' then p_outcome else
    array(select case when retoma.asks_for_help(o.run, o.step, o.item, o.revision, o.outcome) then 'review' else o.outcome end
            from unnest(p_run, p_step, p_item, p_revision, p_outcome)
                 with ordinality as o (run, step, item, revision, outcome, place)
           order by o.place) end;
$$;

create or replace function retoma.asks_for_help(p_run uuid, p_step text, p_item text, p_revision int, p_outcome text)
returns boolean stable language plpgsql as $$
declare
  v_job retoma.jobs;
begin
  select * into v_job from retoma.jobs where run = p_run and step = p_step and item = p_item and revision = p_revision;
  return (p_outcome in ('failed', 'crashed_for_good') or p_outcome = 'crashed' and v_job.crashes >= 2
          or p_outcome = 'died' and v_job.deaths >= 2)
     and (select on_failure from retoma.steps where version = v_job.version and step = p_step) = 'review';
end $$;

-- The outcomes as they count, with the locks of those runs that they may stop: whoever stops a run takes them before its jobs.
create or replace function retoma.outcomes_that_count(p_run uuid[], p_step text[], p_item text[], p_revision int[], p_outcome text[])
returns text[] language plpgsql as $$
begin
  p_outcome := retoma.with_help(p_run, p_step, p_item, p_revision,
                                retoma.within_retries(p_run, p_step, p_item, p_revision, p_outcome));
  perform retoma.lock_runs('stop', array_agg(o.run))
     from unnest(p_run, p_outcome) as o (run, outcome)
    where o.outcome in ('failed', 'crashed', 'crashed_for_good', 'died');
  return p_outcome;
end $$;

-- Record every outcome that is not a result, if these leases still own the jobs. The outcomes:
--   failed, skipped    final
--   retry              to be tried again after a delay
--   wait, back         the same, and the attempt is given back: it asked to wait, or its body did not begin
--   parked             its work goes on outside; the attempt is given back
--   review             a person is asked how to go on
--   interrupted        its worker stopped while it ran
--   crashed            the same as retry, because the child that ran it died; the third time it is quarantined
--   crashed_for_good   the same as crashed, without a try left: it failed, and the third time it is quarantined
--   died               its worker died; the third time it is quarantined
--   stopped            its run is stopping, and it has nothing outside that could be ended
-- A job whose run is stopping is not tried again, unless something of it may go on outside.
-- The caller has asked which outcomes count (`outcomes_that_count`).
create or replace function retoma.set_back(
  p_worker int, p_now timestamptz,
  p_run uuid[], p_step text[], p_item text[], p_revision int[], p_fence int[],
  p_outcome text[], p_delay interval[], p_spent_ms int[], p_code text[], p_error json[],
  out o_accepted int, out o_stopping uuid[], out o_failed uuid[], out o_motions retoma.motion[])
language plpgsql as $$
declare
  v_stopped uuid[];
  v_released retoma.handle[];
  v_parked retoma.jobs[];
  v_handovers json[];
  v_again retoma.handle[];
  v_asking retoma.jobs[];
  v_reasons json[];
begin
  with changed as (
    update retoma.jobs j
       set state = retoma.state_after(o.outcome, j, p_now),
           ended_at = case when retoma.state_after(o.outcome, j, p_now) not in ('ready', 'parked') then p_now end,
           worker = case retoma.state_after(o.outcome, j, p_now) when 'ready' then null when 'parked' then 0 else j.worker end,
           pool = retoma.pool_after(o.outcome, j, retoma.state_after(o.outcome, j, p_now)),
           ready_at = case when retoma.state_after(o.outcome, j, p_now) = 'ready' and o.delay > '0'
                           then p_now + case when j.ending then least(o.delay, interval '1 hour') else o.delay end end,
           attempt = j.attempt - (o.outcome in ('wait', 'back', 'parked'))::int,
           failures = j.failures + (o.outcome in ('retry', 'crashed', 'crashed_for_good'))::int,
           crashes = j.crashes + (o.outcome in ('crashed', 'crashed_for_good'))::int,
           deaths = j.deaths + (o.outcome = 'died')::int,
           spent_ms = case when o.outcome in ('retry', 'crashed') then o.spent_ms else j.spent_ms end,
           code = case retoma.state_after(o.outcome, j, p_now)
                    when 'quarantined' then 'QUARANTINED'
                    when 'cancelled' then 'RUN_STOPPED'
                    when 'parked' then null
                    else o.code end
      from unnest(p_run, p_step, p_item, p_revision, p_fence, p_outcome, p_delay, p_spent_ms, p_code, p_error)
           as o (run, step, item, revision, fence, outcome, delay, spent_ms, code, error)
     where j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
       and j.worker = p_worker and j.fence = o.fence and j.state = 'running'
    returning j as job, o.outcome, o.error
  ), told as (
    insert into retoma.events (run, at, revision, attempt, worker, kind, step, item, data, began_at, again_at)
    select (c.job).run, p_now, (c.job).revision, (c.job).attempt + (c.outcome = 'wait')::int, p_worker,
           case when (c.job).state in ('failed', 'quarantined') then 'failure'
                when (c.job).state = 'skipped' then 'result'
                else 'retry' end,
           (c.job).step, (c.job).item, coalesce(c.error, json_build_object('code', (c.job).code)),
           (c.job).started_at, (c.job).ready_at
      from changed c
     where c.outcome not in ('back', 'parked', 'review') and (c.job).state <> 'cancelled'
  ), final as (
    select c.job, s.on_failure = 'stop' and (c.job).state <> 'skipped' as stops
      from changed c
      join retoma.steps s on s.version = (c.job).version and s.step = (c.job).step
     where (c.job).state in ('failed', 'quarantined', 'skipped')
  )
  select (select count(*) from changed),
         (select array_agg(distinct (c.job).run) from changed c where ((c.job).ending or (c.job).alone) and (c.job).state <> 'parked'),
         (select array_agg(retoma.motion_of(f.job, g))
            from final f
            join retoma.edges g on g.version = (f.job).version and g.from_step = (f.job).step
           where not (f.job).ending and not (f.job).alone
             and not exists (select from final s where s.stops and (s.job).run = (f.job).run)),
         (select array_agg(distinct (f.job).run) from final f where (f.job).state <> 'skipped'),
         (select array_agg(distinct (f.job).run) from final f where f.stops and not (f.job).ending),
         (select array_agg(((c.job).run, (c.job).step, (c.job).item, (c.job).revision)::retoma.handle)
            from changed c where c.outcome <> 'parked' and ((c.job).state <> 'ready' or (c.job).pool is not null)),
         (select array_agg(c.job order by (c.job).run, (c.job).step, (c.job).item) from changed c where c.outcome = 'parked'),
         (select array_agg(c.error order by (c.job).run, (c.job).step, (c.job).item) from changed c where c.outcome = 'parked'),
         (select array_agg(((c.job).run, (c.job).step, (c.job).item, (c.job).revision)::retoma.handle)
            from changed c where (c.job).state = 'ready' and c.outcome in ('retry', 'crashed', 'wait')),
         (select array_agg(c.job order by (c.job).run, (c.job).step, (c.job).item)
            from changed c where c.outcome = 'review' and (c.job).state = 'parked'),
         (select array_agg(c.error order by (c.job).run, (c.job).step, (c.job).item)
            from changed c where c.outcome = 'review' and (c.job).state = 'parked')
    into o_accepted, o_stopping, o_motions, o_failed, v_stopped, v_released, v_parked, v_handovers, v_again, v_asking, v_reasons;

  if v_released is not null then
    perform retoma.release(v_released);
  end if;
  if v_parked is not null then
    perform retoma.hand_over(p_now, v_parked, v_handovers);
  end if;
  if v_again is not null then
    perform retoma.forget_outside(v_again);
  end if;
  for v_place in 1 .. coalesce(cardinality(v_asking), 0) loop
    perform retoma.add_review(p_now, v_asking[v_place], v_reasons[v_place]);
  end loop;

  if v_stopped is not null then
    perform retoma.halt(p_now, v_stopped, 'failed');
    o_stopping := o_stopping || v_stopped;
  end if;
end $$;
