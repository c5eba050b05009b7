-- Workers decide whether an attempt is retried. The death of a worker is decided here: no worker is left to do it. A job of a
-- stopping run is not retried, whatever the worker decided. If it leaves something behind that a worker can look for, it is parked until then.
create or replace function retoma.state_after_outcome(p_outcome text, p_job retoma.jobs) returns retoma.job_state
stable language sql as $$
  select case
           when p_outcome in ('failed', 'quarantined', 'skipped', 'parked') then p_outcome
           when p_job.stopping then case when retoma.leaves_something_to_look_for(p_job) then 'parked' else 'cancelled' end
           when p_outcome in ('review', 'over_budget') then 'parked'
           when p_outcome = 'died' and p_job.worker_deaths >= 2 then 'quarantined'
           else 'ready'
         end::retoma.job_state;
$$;

-- The pool whose slots a job needs before it can start again, null if it needs none. It may keep those that it has.
create or replace function retoma.pool_after_outcome(p_outcome text, p_job retoma.jobs, p_state retoma.job_state) returns text
stable language plpgsql as $$
declare
  v_external text;
  v_pool text;
begin
  if p_state <> 'ready' then
    return p_job.pool;
  end if;
  select pool into v_pool from retoma.steps where version = p_job.version and step = p_job.step;
  if v_pool is null then
    return null;
  end if;
  select o.state into v_external from retoma.external_work o
   where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision;
  -- Only a retry of failed external work submits again.
  return case when not found or v_external in ('failed', 'cancelled', 'lost') and p_outcome in ('retry', 'crashed', 'wait') then v_pool end;
end $$;

-- Whether a job without recorded external work may have submitted some, which then uses its slots: it began to submit, or to do
-- something else that the provider can be asked about and whose outcome is unknown.
create or replace function retoma.may_have_submitted(p_job retoma.jobs) returns boolean stable language sql as $$
  select not exists (select from retoma.external_work o
                      where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision)
     and exists (select from retoma.effects e
                  where e.run = p_job.run and e.step = p_job.step and e.item = p_job.item and e.revision = p_job.revision
                    and (e.request is not null or e.find is not null and e.done_at is null));
$$;

-- The outcomes, with a review in place of a failure where the step asks for one.
create or replace function retoma.replace_failures_with_reviews(p_run uuid[], p_step text[], p_item text[], p_revision int[], p_outcome text[])
returns text[] stable language sql as $$
  select case when not p_outcome && '{failed, quarantined, died}' then p_outcome else
    array(select case when retoma.failure_needs_review(o.run, o.step, o.item, o.revision, o.outcome) then 'review' else o.outcome end
            from unnest(p_run, p_step, p_item, p_revision, p_outcome)
                 with ordinality as o (run, step, item, revision, outcome, ordinal)
           order by o.ordinal) end;
$$;

create or replace function retoma.failure_needs_review(p_run uuid, p_step text, p_item text, p_revision int, p_outcome text)
returns boolean stable language plpgsql as $$
declare
  v_job retoma.jobs;
begin
  select * into v_job from retoma.jobs where run = p_run and step = p_step and item = p_item and revision = p_revision;
  return (p_outcome in ('failed', 'quarantined') or p_outcome = 'died' and v_job.worker_deaths >= 2)
     and (select on_failure from retoma.steps where version = v_job.version and step = p_step) = 'review'
     -- A person is asked once about a job: if they rejected it, it fails.
     and not exists (select from retoma.reviews v
                      where v.run = p_run and v.step = p_step and v.item = p_item and v.revision = p_revision and v.budget is null);
end $$;

-- The outcomes that apply, with the locks of the runs that they may stop: stopping a run locks it before its jobs.
create or replace function retoma.resolve_outcomes(p_run uuid[], p_step text[], p_item text[], p_revision int[], p_outcome text[])
returns text[] language plpgsql as $$
begin
  p_outcome := retoma.replace_failures_with_reviews(p_run, p_step, p_item, p_revision, p_outcome);
  perform retoma.lock_runs('stop', array_agg(o.run))
     from unnest(p_run, p_outcome) as o (run, outcome)
    where o.outcome in ('failed', 'quarantined', 'died');
  return p_outcome;
end $$;

-- Record every outcome that is not a result, if these leases still own the jobs. The outcomes:
--   failed, skipped    final
--   quarantined        final: its child process died for the third time
--   retry              retried after a delay
--   crashed            the same, because its child process died
--   wait, back         the same without counting the attempt: it asked to wait, or its body did not start
--   parked             its external work continues, which `p_effect` submitted; the attempt is not counted
--   over_budget        a person decides whether it may pass a budget, because of `p_review`; its body did not start, and the attempt is
--                      not counted
--   review             a person decides how to continue, because of `p_review` or, if it failed, of its error
--   interrupted        its worker stopped while it ran
--   died               its worker died; the third time it is quarantined
-- The caller has resolved the outcomes (`resolve_outcomes`).
create or replace function retoma.record_outcomes(
  p_worker int, p_now timestamptz,
  p_run uuid[], p_step text[], p_item text[], p_revision int[], p_fence int[],
  p_outcome text[], p_delay interval[], p_spent_ms int[], p_code text[], p_error json[],
  p_review json[] default null, p_effect text[] default null,
  out o_accepted int, out o_stopping uuid[], out o_failed uuid[], out o_events retoma.edge_event[])
language plpgsql as $$
declare
  v_stopped uuid[];
  v_released retoma.job_key[];
  v_parked retoma.jobs[];
  v_submissions text[];
  v_abandoning retoma.job_key[];
  v_retried retoma.job_key[];
  v_to_review retoma.jobs[];
  v_review_reasons json[];
begin
  with changed as (
    update retoma.jobs j
       set state = retoma.state_after_outcome(o.outcome, j),
           ended_at = case when retoma.state_after_outcome(o.outcome, j) not in ('ready', 'parked') then p_now end,
           worker = case retoma.state_after_outcome(o.outcome, j) when 'ready' then null when 'parked' then 0 else j.worker end,
           pool = retoma.pool_after_outcome(o.outcome, j, retoma.state_after_outcome(o.outcome, j)),
           ready_at = case when retoma.state_after_outcome(o.outcome, j) = 'ready' and o.delay > '0'
                           then p_now + o.delay end,
           attempt = j.attempt - (o.outcome in ('wait', 'back', 'parked', 'over_budget'))::int,
           failures = j.failures + (o.outcome in ('retry', 'crashed', 'quarantined'))::int,
           child_crashes = j.child_crashes + (o.outcome in ('crashed', 'quarantined'))::int,
           worker_deaths = j.worker_deaths + (o.outcome = 'died')::int,
           spent_ms = case when o.outcome in ('retry', 'crashed') then o.spent_ms else j.spent_ms end,
           code = case retoma.state_after_outcome(o.outcome, j)
                    when 'quarantined' then 'QUARANTINED'
                    when 'cancelled' then 'RUN_STOPPED'
                    when 'parked' then null
                    else o.code end
      from unnest(p_run, p_step, p_item, p_revision, p_fence, p_outcome, p_delay, p_spent_ms, p_code, p_error, p_review, p_effect)
           as o (run, step, item, revision, fence, outcome, delay, spent_ms, code, error, review, effect)
     where j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
       and j.worker = p_worker and j.fence = o.fence and j.state = 'running'
    returning j as job, o.outcome, o.error, o.review, o.effect
  ), logged as (
    insert into retoma.events (run, at, revision, attempt, worker, kind, step, item, data, started_at, retry_at)
    select (c.job).run, p_now, (c.job).revision, (c.job).attempt + (c.outcome = 'wait')::int, p_worker,
           case when (c.job).state in ('failed', 'quarantined') then 'failure'
                when (c.job).state = 'skipped' then 'result'
                else 'retry' end,
           (c.job).step, (c.job).item, coalesce(c.error, json_build_object('code', (c.job).code)),
           (c.job).started_at, (c.job).ready_at
      from changed c
     where c.outcome not in ('back', 'parked', 'review', 'over_budget') and (c.job).state not in ('cancelled', 'parked')
       and ((c.job).code is distinct from 'AWAITS_RUN' or (c.job).fence = 1)
  ), final as (
    select c.job, s.on_failure = 'stop' and (c.job).state <> 'skipped' as stops
      from changed c
      join retoma.steps s on s.version = (c.job).version and s.step = (c.job).step
     where (c.job).state in ('failed', 'quarantined', 'skipped')
  )
  select (select count(*) from changed),
         (select array_agg(distinct (c.job).run) from changed c where ((c.job).stopping or (c.job).isolated_rerun) and (c.job).state <> 'parked'),
         (select array_agg(retoma.edge_event(f.job, g))
            from final f
            join retoma.edges g on g.version = (f.job).version and g.from_step = (f.job).step
           where not (f.job).stopping and not (f.job).isolated_rerun
             and not exists (select from final s where s.stops and (s.job).run = (f.job).run)),
         (select array_agg(distinct (f.job).run) from final f where (f.job).state <> 'skipped'),
         (select array_agg(distinct (f.job).run) from final f where f.stops and not (f.job).stopping),
         (select array_agg(((c.job).run, (c.job).step, (c.job).item, (c.job).revision)::retoma.job_key)
            from changed c
           where case (c.job).state when 'ready' then (c.job).pool is not null and not retoma.may_have_submitted(c.job)
                                    when 'parked' then c.outcome in ('review', 'over_budget') and not (c.job).stopping
                                    else true end),
         (select array_agg(c.job order by (c.job).run, (c.job).step, (c.job).item) from changed c where c.outcome = 'parked'),
         (select array_agg(c.effect order by (c.job).run, (c.job).step, (c.job).item) from changed c where c.outcome = 'parked'),
         (select array_agg(((c.job).run, (c.job).step, (c.job).item, (c.job).revision)::retoma.job_key)
            from changed c
           where (c.job).state in ('failed', 'quarantined', 'skipped', 'cancelled')
              or (c.job).state = 'parked' and (c.job).stopping and c.outcome <> 'parked'),
         (select array_agg(((c.job).run, (c.job).step, (c.job).item, (c.job).revision)::retoma.job_key)
            from changed c where (c.job).state = 'ready' and c.outcome in ('retry', 'crashed', 'wait')),
         (select array_agg(c.job order by (c.job).run, (c.job).step, (c.job).item)
            from changed c where c.outcome in ('review', 'over_budget') and (c.job).state = 'parked' and not (c.job).stopping),
         (select array_agg(coalesce(c.review, c.error) order by (c.job).run, (c.job).step, (c.job).item)
            from changed c where c.outcome in ('review', 'over_budget') and (c.job).state = 'parked' and not (c.job).stopping)
    into o_accepted, o_stopping, o_events, o_failed, v_stopped, v_released, v_parked, v_submissions, v_abandoning, v_retried, v_to_review,
         v_review_reasons;

  if v_released is not null then
    perform retoma.release_slots(v_released);
  end if;
  if v_parked is not null then
    perform retoma.record_external_work(p_now, v_parked, v_submissions);
  end if;
  if v_abandoning is not null then
    perform retoma.abandon_effects(p_now, p_now, v_abandoning);
    -- An effect that was undone since the states were derived leaves nothing to look for.
    perform retoma.end_stopping_job(p_now, j)
       from retoma.jobs j
       join unnest(v_abandoning) a on a.run = j.run and a.step = j.step and a.item = j.item and a.revision = j.revision
      where j.state = 'parked' and not retoma.is_looked_for(j);
  end if;
  if v_retried is not null then
    perform retoma.forget_external_work(v_retried);
  end if;
  for v_index in 1 .. coalesce(cardinality(v_to_review), 0) loop
    perform retoma.create_review(p_now, v_to_review[v_index], v_review_reasons[v_index]);
  end loop;

  if v_stopped is not null then
    perform retoma.stop_runs(p_now, v_stopped, 'failed');
    o_stopping := o_stopping || v_stopped;
  end if;
end $$;
