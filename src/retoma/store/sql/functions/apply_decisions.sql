-- Apply a decision: the job continues, the work goes back, or the run ends. A rejected item fails, and the run continues: its job
-- becomes ready like an approved one, and the worker that claims it reads the decision. The caller holds the run's lock and the
-- review.
create or replace function retoma.apply_decision(p_now timestamptz, p_review uuid) returns void language plpgsql as $$
declare
  v_review retoma.reviews;
  v_state retoma.review_state;
begin
  update retoma.reviews v set applied_at = p_now, next_at = null where id = p_review returning * into v_review;
  v_state := retoma.effective_decision(v_review);
  if v_state = 'rejected' and retoma.rejection_ends_run(v_review) then
    perform retoma.stop_runs(p_now, array[v_review.run], 'rejected');
  elsif v_state = 'sent_back' then
    begin
      perform retoma.send_back_work(p_now, v_review);
    exception when sqlstate 'RT004' then
      -- A dependency is running: the work goes back when that has ended.
      update retoma.reviews set applied_at = null, next_at = p_now + interval '1 second' where id = p_review;
    end;
  else
    perform from retoma.jobs j
      where j.run = v_review.run and j.step = v_review.step and j.item = v_review.item and j.revision = v_review.revision for update;
    update retoma.jobs j
       set state = 'ready', worker = null, pool = case when v_review.budget is not null then j.pool end
     where j.run = v_review.run and j.step = v_review.step and j.item = v_review.item and j.revision = v_review.revision
       and j.state = 'parked';
    if v_review.budget is null then
      -- Its function is not called again.
      perform retoma.abandon_effects(
        p_now, p_now, array[(v_review.run, v_review.step, v_review.item, v_review.revision)::retoma.job_key], p_keep_done => true);
    end if;
    perform pg_notify('retoma_ready', '');
  end if;
  perform retoma.refresh_run_state(p_now, array[v_review.run]);
end $$;

-- The decision on a review that has been decided or has expired.
create or replace function retoma.effective_decision(p_review retoma.reviews) returns retoma.review_state stable language sql as $$
  select case when p_review.state = 'expired'
              then (select (s.review ->> 'on_expiry')::retoma.review_state
                      from retoma.steps s where s.version = p_review.version and s.step = p_review.step)
              else p_review.state end;
$$;

-- Whether a rejection ends the run. If not, it fails only its item.
create or replace function retoma.rejection_ends_run(p_review retoma.reviews) returns boolean stable language sql as $$
  select p_review.item = '' or p_review.budget is not null or s.on_failure = 'stop' or coalesce((s.review ->> 'rejection_ends_run')::boolean, false)
    from retoma.steps s where s.version = p_review.version and s.step = p_review.step;
$$;

create or replace function retoma.send_back_work(p_now timestamptz, p_review retoma.reviews) returns void language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_review.run, null, '{}');
  v_run retoma.runs := v_action.run;
  v_jobs retoma.job_key[] := retoma.send_back_targets(p_review, p_review.back_to, p_review.back_items);
begin
  if v_jobs is null then
    -- Its subject has disappeared since the decision.
    update retoma.reviews set applied_at = null where id = p_review.id;
    perform retoma.reopen_review(p_now, p_review, 'retoma');
    return;
  end if;
  perform retoma.record_action(v_action, p_review.decided_by, '{}', v_run.revision + 1, cardinality(v_jobs),
                               jsonb_build_object('action', 'send_back', 'review', p_review.id, 'step', p_review.back_to,
                                                  'items', p_review.back_items, 'reason', p_review.notes));
  perform retoma.rerun_jobs(p_now, v_run, v_jobs, '{}', jsonb_build_object(
    'by', p_review.decided_by, 'review', p_review.step, 'notes', coalesce(p_review.notes, ''),
    'items', coalesce(to_jsonb(p_review.back_items), '[]')) || coalesce(p_review.feedback::jsonb, '{}'), false, true);
end $$;

-- The jobs that rerun when work goes back to this step, or to these items of it. Null if one of them does not exist, or if the
-- review would not run again. A job for one item goes back for that item, unless other items were chosen.
create or replace function retoma.send_back_targets(p_review retoma.reviews, p_to text, p_items text[]) returns retoma.job_key[]
stable language plpgsql as $$
declare
  v_items text[] := coalesce(p_items, case when p_review.item <> '' then array[p_review.item] end);
  v_jobs retoma.job_key[];
begin
  select retoma.find_rerun_targets(r, array[p_to], v_items) into v_jobs from retoma.runs r where r.id = p_review.run;
  if exists (select from unnest(v_items) i (item)
              where not exists (select from unnest(v_jobs) j where j.item in (i.item, '')))
     or not exists (select from retoma.find_affected_jobs(p_review.run, p_review.version, v_jobs) a
                     where a.step = p_review.step and (a.item is null or a.item = p_review.item)) then
    return null;
  end if;
  return v_jobs;
end $$;
