-- Decide a review. Returns `decided`; `same`, if this decision was made before; `reused`, if its key came with another
-- decision; `taken`, if another person was first; `changed`, if the person saw another revision; `forbidden`, if work may not
-- go back there; `capped`, if it went back too often; `missed`, if nothing would rerun; null if there is no such review. A
-- decision takes effect after `p_undo`. `p_person` is the number of the person, if it is one with an account.
create or replace function retoma.decide_review_as(
  p_review uuid, p_tenant int, p_state retoma.review_state, p_by text, p_via text, p_seen_revision int, p_key text, p_value json,
  p_notes text, p_feedback json, p_to text, p_items text[], p_undo interval, p_person int) returns text
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
    row(coalesce('person ' || p_person, p_by), p_state, p_value::text, p_notes, p_feedback::text, p_to, p_items)::text, 'UTF8')), 'hex'));
  select * into v_known from retoma.action_keys where subject = p_review and key = p_key;
  if v_known.digest = v_action_key ->> 'digest' then
    return 'same';  -- also if it was undone since: a late repetition must not decide again
  elsif v_review.state <> 'open' then
    return case when v_review.state not in ('approved', 'sent_back', 'rejected') or not retoma.is_same_person(v_review.decided_person, v_review.decided_by, p_person, p_by)
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
    if v_review.budget is not null or p_to <> v_review.step and not coalesce(v_held::jsonb -> 'to' ? p_to, false) or v_review.planned and p_to = v_review.step then
      return 'forbidden';
    elsif retoma.count_sent_back(v_review) >= (v_held ->> 'max_revisions')::int then
      return 'capped';
    elsif retoma.send_back_targets(v_review, p_to, p_items) is null then
      return 'missed';
    end if;
  end if;
  update retoma.reviews
     set state = p_state, decided_by = p_by, decided_person = p_person, via = p_via, decided_at = v_now, effective_at = v_now + p_undo, ended_at = v_now,
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

-- The function as the previous release calls it, without the number of a person.
create or replace function retoma.decide_review(
  p_review uuid, p_tenant int, p_state retoma.review_state, p_by text, p_via text, p_seen_revision int, p_key text, p_value json,
  p_notes text, p_feedback json, p_to text, p_items text[], p_undo interval) returns text language sql as $$
  select retoma.decide_review_as(p_review, p_tenant, p_state, p_by, p_via, p_seen_revision, p_key, p_value, p_notes, p_feedback, p_to, p_items,
                              p_undo, null::int);
$$;

-- Whether a person of a review is this one: by number, which no other person has and no new name changes; of those without an
-- account, by name.
create or replace function retoma.is_same_person(p_known int, p_known_name text, p_person int, p_name text)
returns boolean immutable language sql as $$
  select case when p_known is null and p_person is null then p_known_name is not distinct from p_name
              else p_known is not distinct from p_person end;
$$;

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

-- Whether this step and item had no earlier review in its run.
create or replace function retoma.is_first_review(p_review retoma.reviews) returns boolean stable language sql as $$
  select not exists (select from retoma.reviews v
                      where v.run = p_review.run and v.step = p_review.step and v.item = p_review.item
                        and v.revision < p_review.revision and v.state <> 'withdrawn');
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
     set state = 'open', decided_by = null, decided_person = null, via = null, decided_at = null, effective_at = null, ended_at = null,
         decision_key = null, value = null, notes = null, feedback = null, back_to = null, back_items = null,
         next_at = retoma.next_review_time(p_now, remind_at, escalate_at, expires_at, due_at)
   where id = p_review.id;
  select retoma.log_review_event(p_now, p_review, jsonb_build_object('what', 'undone', 'by', p_by));
$$;
