-- Park a job with a review when it becomes ready, in the same transaction. If its subject is unchanged since the last decision,
-- the job continues with that decision.
create or replace function retoma.park_for_review() returns trigger language plpgsql as $$
declare
  v_review json := (select s.review from retoma.steps s where s.version = new.version and s.step = new.step);
begin
  if new.revision > 1 and retoma.reusable_result(new.run, new.step, new.item, new.revision) is not null then
    new.queue := v_review ->> 'queue';
    return new;
  end if;
  new.state := 'parked';
  new.worker := 0;
  perform retoma.create_review(retoma.now(), new, null);
  return new;
end $$;

create or replace trigger review_jobs_are_parked
  before insert or update of state on retoma.jobs for each row
  when (new.queue = '' and new.state = 'ready')
  execute function retoma.park_for_review();

-- Open a review of a job that was just parked. With a reason a step asked for help; without one its pipeline planned the
-- review.
create or replace function retoma.create_review(p_now timestamptz, p_job retoma.jobs, p_reason json) returns void language sql as $$
  with held as (
    select s.review from retoma.steps s where s.version = p_job.version and s.step = p_job.step
  ), opened as (
    insert into retoma.reviews (run, step, item, revision, version, tenant, planned, reason, opened_at, due_at, remind_at,
                                escalate_at, expires_at, assignee, next_at)
    select p_job.run, p_job.step, p_job.item, p_job.revision, p_job.version, p_job.tenant, p_reason is null, p_reason, p_now,
           p_now + retoma.json_seconds(h.review -> 'due'), p_now + retoma.json_seconds(h.review -> 'remind'),
           p_now + retoma.json_seconds(h.review -> 'escalate'), p_now + retoma.json_seconds(h.review -> 'expires'),
           h.review ->> 'assignee',
           -- Another job may end at the same time without seeing this review: refresh the run's state soon.
           p_now + least(interval '1 second', retoma.json_seconds(h.review -> 'remind'), retoma.json_seconds(h.review -> 'escalate'),
                         retoma.json_seconds(h.review -> 'expires'))
      from held h
    returning *
  ), logged as (
    insert into retoma.events (run, at, revision, kind, step, item, data)
    select o.run, p_now, o.revision, 'review', o.step, o.item,
           json_build_object('review', o.id, 'what', 'opened', 'planned', o.planned, 'code', o.reason ->> 'code')
      from opened o
  )
  select retoma.queue_webhook_event(p_now, o.run, o.tenant, 'review.opened', json_build_object('review', o.id))
    from opened o;
$$;

create or replace function retoma.json_seconds(p_value json) returns interval immutable language sql as $$
  select make_interval(secs => (p_value #>> '{}')::float);
$$;

-- Refresh the state of these runs, if they have reviews: a run is running while any job can progress without a person.
create or replace function retoma.refresh_run_state(p_runs uuid[]) returns void language plpgsql as $$
declare
  -- Including runs whose last review was just decided.
  v_reviewed uuid[] := array(select distinct v.run from retoma.reviews v where v.run = any (p_runs));
begin
  if v_reviewed = '{}' then
    return;
  end if;
  -- The last two jobs may end at once: the lock lets the second see the first.
  perform from retoma.runs where id = any (v_reviewed) order by id for update;
  update retoma.runs r
     set state = n.state,
         watch_at = case when n.state = 'running' then retoma.next_watch_at(r, retoma.now() + v.stuck_after) else r.watch_at end
    from (select a.run, retoma.state_during_reviews(a.run) as state from unnest(v_reviewed) as a (run)) n, retoma.versions v
   where r.id = n.run and v.id = r.version and r.state in ('running', 'paused', 'needs_review')
     and coalesce(r.final_state, 'completed') not in ('cancelled', 'rejected') and r.state <> n.state;
end $$;

create or replace function retoma.state_during_reviews(p_run uuid) returns retoma.run_state stable language sql as $$
  select case
    when exists (select from retoma.jobs j
                  where j.run = p_run and (j.state in ('ready', 'running') or j.state = 'parked' and not j.stopping)
                    and not exists (select from retoma.reviews v
                                     where v.run = p_run and v.step = j.step and v.item = j.item and v.revision = j.revision
                                       and v.applied_at is null)) then 'running'
    when exists (select from retoma.reviews v
                  where v.run = p_run and v.applied_at is null and not v.planned) then 'needs_review'
    when exists (select from retoma.reviews v where v.run = p_run and v.applied_at is null) then 'paused'
    else 'running' end::retoma.run_state;
$$;

-- Decide a review. Returns `decided`; `same`, if this decision was made before; `reused`, if its key came with another
-- decision; `taken`, if another person was first; `changed`, if the person saw another revision; `forbidden`, if work may not
-- go back there; `capped`, if it went back too often; `missed`, if nothing would rerun; null if there is no such review. A
-- decision takes effect after `p_undo`.
create or replace function retoma.decide_review(
  p_review uuid, p_tenant int, p_state retoma.review_state, p_by text, p_via text, p_seen_revision int, p_key text, p_value json,
  p_notes text, p_feedback json, p_to text, p_items text[], p_undo interval) returns text
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_review retoma.reviews := retoma.lock_review(p_review, p_tenant);
  v_held json := (select s.review from retoma.steps s where s.version = v_review.version and s.step = v_review.step);
  v_action_key jsonb;
  v_known retoma.action_keys;
begin
  if p_state = 'sent_back' then
    p_to := coalesce(p_to, v_held -> 'to' ->> 0, v_review.step);
  end if;
  if v_review.id is null then
    return null;
  end if;
  v_action_key := jsonb_build_object('key', p_key, 'digest', encode(sha256(convert_to(
    row(p_by, p_state, p_value::text, p_notes, p_feedback::text, p_to, p_items)::text, 'UTF8')), 'hex'));
  select * into v_known from retoma.action_keys where subject = p_review and key = p_key;
  if v_known.digest = v_action_key ->> 'digest' then
    return 'same';  -- also if it was undone since: a late repetition must not decide again
  elsif v_review.state <> 'open' then
    return case when v_review.state not in ('approved', 'sent_back', 'rejected') or v_review.decided_by <> p_by
                  or (v_review.decision_key = p_key) is not true then 'taken'
                when (v_review.state, v_review.value::text, v_review.notes, v_review.feedback::text,
                      v_review.back_to, v_review.back_items)
                     is distinct from (p_state, p_value::text, p_notes, p_feedback::text, p_to, p_items) then 'reused'
                else 'same' end;
  elsif v_known.key is not null then
    return 'reused';
  elsif v_review.revision <> p_seen_revision then
    return 'changed';
  end if;
  if p_state = 'sent_back' then
    if p_to <> v_review.step and not coalesce(v_held::jsonb -> 'to' ? p_to, false) or v_review.planned and p_to = v_review.step then
      return 'forbidden';
    elsif retoma.count_sent_back(v_review) >= (v_held ->> 'max_revisions')::int then
      return 'capped';
    elsif retoma.send_back_targets(v_review, p_to, p_items) is null then
      return 'missed';
    end if;
  end if;
  update retoma.reviews
     set state = p_state, decided_by = p_by, via = p_via, decided_at = v_now, effective_at = v_now + p_undo, ended_at = v_now,
         next_at = v_now + p_undo, decision_key = p_key, value = p_value, notes = p_notes, feedback = p_feedback,
         back_to = p_to, back_items = p_items
   where id = p_review;
  perform retoma.record_answer(p_review, v_action_key, jsonb_build_object('state', p_state));
  perform retoma.log_review_event(v_now, v_review, jsonb_build_object(
    'what', p_state, 'by', p_by, 'via', p_via, 'notes', p_notes, 'to', p_to, 'items', p_items,
    'edited', p_value is not null and (v_held ->> 'form')::boolean is not true));
  if p_undo <= interval '0' then
    perform retoma.apply_decision(v_now, p_review);
  end if;
  return 'decided';
end $$;

-- Lock the run before the review, as every action does.
create or replace function retoma.lock_review(p_review uuid, p_tenant int) returns retoma.reviews language plpgsql as $$
declare
  v_review retoma.reviews;
begin
  select * into v_review from retoma.reviews where id = p_review and (p_tenant is null or tenant = p_tenant);
  if found then
    perform retoma.lock_runs('stop', array[v_review.run]);
    select * into v_review from retoma.reviews where id = p_review for update;
  end if;
  return v_review;
end $$;

create or replace function retoma.count_sent_back(p_review retoma.reviews) returns int stable language sql as $$
  select count(*)::int from retoma.reviews v
   where v.run = p_review.run and v.step = p_review.step and v.item = p_review.item and v.state = 'sent_back';
$$;

create or replace function retoma.log_review_event(p_now timestamptz, p_review retoma.reviews, p_data jsonb) returns void language sql as $$
  insert into retoma.events (run, at, revision, kind, step, item, data)
  values (p_review.run, p_now, p_review.revision, 'review', p_review.step, p_review.item,
          (jsonb_build_object('review', p_review.id) || jsonb_strip_nulls(p_data))::json);
$$;

-- Undo a decision before it takes effect: the review is open again. Returns whether it was in time.
create or replace function retoma.undo_decision(p_review uuid, p_tenant int, p_by text) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_review retoma.reviews := retoma.lock_review(p_review, p_tenant);
begin
  if v_review.id is null then
    return null;
  elsif v_review.state not in ('approved', 'sent_back', 'rejected') or v_review.applied_at is not null then
    return false;
  end if;
  perform retoma.reopen_review(v_now, v_review, p_by);
  return true;
end $$;

create or replace function retoma.reopen_review(p_now timestamptz, p_review retoma.reviews, p_by text) returns void language sql as $$
  update retoma.reviews
     set state = 'open', decided_by = null, via = null, decided_at = null, effective_at = null, ended_at = null,
         decision_key = null, value = null, notes = null, feedback = null, back_to = null, back_items = null,
         next_at = least(remind_at, escalate_at, expires_at)
   where id = p_review.id;
  select retoma.log_review_event(p_now, p_review, jsonb_build_object('what', 'undone', 'by', p_by));
$$;

-- Apply a decision: the job continues, the work goes back, or the run ends. The caller holds the run's lock and the review.
create or replace function retoma.apply_decision(p_now timestamptz, p_review uuid) returns void language plpgsql as $$
declare
  v_review retoma.reviews;
  v_state retoma.review_state;
begin
  update retoma.reviews v set applied_at = p_now, next_at = null where id = p_review returning * into v_review;
  v_state := v_review.state;
  if v_state = 'expired' then
    select (s.review ->> 'on_expiry')::retoma.review_state into v_state
      from retoma.steps s where s.version = v_review.version and s.step = v_review.step;
  end if;
  if v_state = 'rejected' then
    perform retoma.stop_runs(p_now, array[v_review.run], 'rejected');
    perform retoma.close_stopped_runs(p_now, array[v_review.run]);
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
       set state = 'ready', worker = null, pool = null,
           queue = coalesce((select s.review ->> 'queue' from retoma.steps s where s.version = j.version and s.step = j.step), j.queue)
     where j.run = v_review.run and j.step = v_review.step and j.item = v_review.item and j.revision = v_review.revision
       and j.state = 'parked';
    perform pg_notify('retoma_ready', '');
  end if;
  perform retoma.refresh_run_state(array[v_review.run]);
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

create or replace function retoma.send_back_work(p_now timestamptz, p_review retoma.reviews) returns void language plpgsql as $$
declare
  v_run retoma.runs := retoma.lock_run_for_action(p_review.run, null);
  v_jobs retoma.job_key[] := retoma.send_back_targets(p_review, p_review.back_to, p_review.back_items);
begin
  if v_jobs is null then
    -- Its subject has disappeared since the decision.
    update retoma.reviews set applied_at = null where id = p_review.id;
    perform retoma.reopen_review(p_now, p_review, 'retoma');
    return;
  end if;
  perform retoma.log_action(p_now, p_review.run, v_run.revision + 1, p_review.decided_by,
                            jsonb_build_object('action', 'send_back', 'review', p_review.id, 'step', p_review.back_to,
                                               'items', p_review.back_items, 'reason', p_review.notes));
  perform retoma.rerun_jobs(p_now, v_run, v_jobs, '{}', jsonb_build_object(
    'by', p_review.decided_by, 'review', p_review.step, 'notes', coalesce(p_review.notes, ''),
    'items', coalesce(to_jsonb(p_review.back_items), '[]')) || coalesce(p_review.feedback::jsonb, '{}'), false, true);
end $$;

-- Whether a job waits for a person, and not for external work.
create or replace function retoma.waits_for_review(p_job retoma.jobs) returns boolean stable language sql as $$
  select p_job.state = 'parked'
     and exists (select from retoma.reviews v
                  where v.run = p_job.run and v.step = p_job.step and v.item = p_job.item and v.revision = p_job.revision)
     and not exists (select from retoma.external_work o
                      where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision
                        and o.ended_at is null);
$$;

-- Cancel jobs that wait for a review, and withdraw their reviews.
create or replace function retoma.cancel_review_jobs(p_now timestamptz, p_jobs retoma.job_key[], p_code text) returns void language plpgsql as $$
begin
  update retoma.jobs j set state = 'cancelled', ended_at = p_now, code = p_code
    from unnest(p_jobs) h
   where j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision and j.state = 'parked';
  perform retoma.withdraw_reviews(p_now, p_jobs);
end $$;

-- Withdraw the reviews of these jobs.
create or replace function retoma.withdraw_reviews(p_now timestamptz, p_jobs retoma.job_key[]) returns void language sql as $$
  with withdrawn as (
    update retoma.reviews v
       set state = 'withdrawn', applied_at = p_now, ended_at = coalesce(v.ended_at, p_now), next_at = null
     -- Job by job, whatever the planner expects of the number of open reviews.
     where v.id = any (array(
             select r.id from unnest(p_jobs) j,
                    lateral (select o.id from retoma.reviews o
                              where o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
                                and o.applied_at is null offset 0) r))
    returning v.*
  )
  select retoma.log_review_event(p_now, w::retoma.reviews, '{"what": "withdrawn"}') from withdrawn w;
$$;

-- Process due reviews: decisions take effect, assignees are reminded, reviews escalate, and undecided ones expire. Returns how
-- many.
create or replace function retoma.process_due_reviews(p_limit int) returns int
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_id uuid;
  v_run uuid;
  v_review retoma.reviews;
  v_processed int := 0;
begin
  -- In the order of runs, as others that write to several.
  for v_id, v_run in
    select d.id, d.run
      from (select v.id, v.run from retoma.reviews v where v.next_at <= v_now order by v.next_at limit p_limit) d
     order by d.run, d.id
  loop
    -- Another transaction processes this run.
    continue when not pg_try_advisory_xact_lock(hashtextextended('stop' || v_run::text, 0));
    select * into v_review from retoma.reviews where id = v_id and next_at <= v_now for update skip locked;
    continue when not found;
    v_processed := v_processed + 1;
    begin
      perform retoma.process_due_review(v_now, v_review);
    exception when others then
      -- A review that cannot be processed must not block the others.
      raise warning 'review % cannot be processed yet: %', v_id, sqlerrm;
      update retoma.reviews set next_at = v_now + case when sqlstate like '40%' then interval '1 second' else interval '1 minute' end
       where id = v_id;
    end;
  end loop;
  return v_processed;
end $$;

create or replace function retoma.process_due_review(p_now timestamptz, p_review retoma.reviews) returns void language plpgsql as $$
begin
  if p_review.state <> 'open' then
    perform retoma.apply_decision(p_now, p_review.id);
  elsif p_review.expires_at <= p_now then
    update retoma.reviews set state = 'expired', ended_at = p_now where id = p_review.id;
    perform retoma.log_review_event(p_now, p_review, '{"what": "expired"}');
    perform retoma.apply_decision(p_now, p_review.id);
  else
    perform retoma.remind_and_escalate(p_now, p_review);
    perform retoma.refresh_run_state(array[p_review.run]);
  end if;
end $$;

create or replace function retoma.remind_and_escalate(p_now timestamptz, p_review retoma.reviews) returns void language plpgsql as $$
declare
  v_to text := (select s.review ->> 'escalate_to' from retoma.steps s where s.version = p_review.version and s.step = p_review.step);
begin
  if p_review.escalate_at <= p_now then
    update retoma.reviews set assignee = coalesce(v_to, assignee), escalate_at = null where id = p_review.id;
    perform retoma.log_review_event(p_now, p_review, jsonb_build_object('what', 'escalated', 'to', v_to));
  end if;
  if p_review.remind_at <= p_now then
    update retoma.reviews set remind_at = null where id = p_review.id;
    perform retoma.log_review_event(p_now, p_review, jsonb_build_object('what', 'reminded', 'assignee', p_review.assignee));
  end if;
  update retoma.reviews set next_at = least(remind_at, escalate_at, expires_at) where id = p_review.id;
end $$;

-- Whether this step and item had no earlier review in its run.
create or replace function retoma.is_first_review(p_review retoma.reviews) returns boolean stable language sql as $$
  select not exists (select from retoma.reviews v
                      where v.run = p_review.run and v.step = p_review.step and v.item = p_review.item
                        and v.revision < p_review.revision and v.state <> 'withdrawn');
$$;
