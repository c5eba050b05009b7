-- Process due reviews: decisions take effect, people are reminded and notified, reviews escalate, and undecided ones expire. Returns how
-- many.
create or replace function retoma.process_due_reviews(p_limit int) returns int
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
  elsif p_review.budget is not null then
    perform retoma.recheck_budget(p_now, p_review);
    -- Another job may have ended when this review was opened, without seeing it. Once the run waits for people, decisions refresh its
    -- state: do not derive that of a run with hundreds of such reviews for each of them.
    if exists (select from retoma.runs r where r.id = p_review.run and r.state <> 'needs_review') then
      perform retoma.refresh_run_state(p_now, array[p_review.run]);
    end if;
  elsif p_review.expires_at <= p_now then
    update retoma.reviews set state = 'expired', ended_at = p_now where id = p_review.id;
    perform retoma.log_review_event(p_now, p_review, '{"what": "expired"}');
    perform retoma.apply_decision(p_now, p_review.id);
  else
    perform retoma.remind_and_escalate(p_now, p_review);
    perform retoma.refresh_run_state(p_now, array[p_review.run]);
  end if;
end $$;

create or replace function retoma.remind_and_escalate(p_now timestamptz, p_review retoma.reviews) returns void language plpgsql as $$
declare
  v_to text := (select s.review ->> 'escalate_to' from retoma.steps s where s.version = p_review.version and s.step = p_review.step);
  v_review retoma.reviews := p_review;
begin
  if p_review.escalate_at <= p_now then
    -- The one it was assigned to before no longer counts. A role that is named becomes the assigned role.
    update retoma.reviews
       set assignee = coalesce(v_to, assignee), escalate_at = null,
           assigned_person = case when v_to is null then assigned_person end,
           assigned_role = case when v_to is null then assigned_role when retoma.role_rank(v_to) is not null then v_to end
     where id = p_review.id returning * into v_review;
    perform retoma.log_review_event(p_now, p_review, jsonb_build_object('what', 'escalated', 'to', v_to));
    perform retoma.notify_of_review(p_now, v_review, 'escalated');
  end if;
  if p_review.remind_at <= p_now then
    update retoma.reviews set remind_at = null where id = p_review.id;
    perform retoma.log_review_event(p_now, p_review, jsonb_build_object('what', 'reminded', 'assignee', p_review.assignee));
    perform retoma.notify_of_review(p_now, v_review, 'reminded');
  end if;
  if p_review.due_at <= p_now then
    perform retoma.notify_of_review(p_now, v_review, 'due');  -- only the first time
  end if;
  update retoma.reviews set next_at = retoma.next_review_time(p_now, remind_at, escalate_at, expires_at, due_at) where id = p_review.id;
end $$;

-- When maintenance should process an open review next.
create or replace function retoma.next_review_time(
  p_now timestamptz, p_remind_at timestamptz, p_escalate_at timestamptz, p_expires_at timestamptz, p_due_at timestamptz)
returns timestamptz immutable language sql as $$
  select least(p_remind_at, p_escalate_at, p_expires_at, case when p_due_at > p_now then p_due_at end);
$$;
