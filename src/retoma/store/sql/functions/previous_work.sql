-- What the worker of a job needs to know: its previous result, a person's feedback, and a person's decision, `approved` or
-- `rejected`. `o_decided_by` is null if nobody decided before the review expired.
create or replace function retoma.load_previous_work(
  p_run uuid, p_step text, p_item text, p_revision int,
  out o_reused json, out o_previous_result json, out o_feedback json, out o_decision text, out o_value json,
  out o_decided_by text, out o_notes text)
language plpgsql as $$
declare
  v_from int;
  v_previous_revision int;
  v_review retoma.reviews;
begin
  select r.o_output, r.o_revision into o_reused, v_from from retoma.reusable_result(p_run, p_step, p_item, p_revision) r;
  if v_from is not null then
    update retoma.pending_reruns set reused_from = v_from
     where run = p_run and revision = p_revision and step = p_step and item = p_item;
  end if;
  select j.output, j.revision into o_previous_result, v_previous_revision from retoma.jobs j
   where j.run = p_run and j.step = p_step and j.item = p_item and j.revision < p_revision and j.state = 'succeeded'
   order by j.revision desc limit 1;
  -- Feedback applies until the job has a result: a failed job reruns with it.
  select m.feedback into o_feedback from retoma.pending_reruns m
   where m.run = p_run and m.step = p_step and m.item = p_item and m.feedback is not null
     and m.revision > coalesce(v_previous_revision, 0) and m.revision <= p_revision
   order by m.revision desc limit 1;
  select * into v_review from retoma.reviews v
   where v.run = p_run and v.step = p_step and v.item = p_item and v.revision = p_revision
     and v.budget is null and v.applied_at is not null and v.state in ('approved', 'rejected', 'expired');
  if found then
    -- Without an item, a rejection ended the run: this was an approval, even if the policy of expired reviews has changed since.
    o_decision := case when v_review.item = '' then 'approved' else retoma.effective_decision(v_review)::text end;
    o_decided_by := v_review.decided_by;
    o_notes := v_review.notes;
    if o_decision = 'approved' then
      o_value := coalesce(v_review.value, v_review.reason -> 'value');
    end if;
  end if;
end $$;

-- The same for workers of release 0.1.0rc1, which would record a rejected item as approved. This error fails their attempt instead.
create or replace function retoma.previous_work(
  p_run uuid, p_step text, p_item text, p_revision int,
  out o_reused json, out o_previous_result json, out o_feedback json, out o_decision text, out o_value json)
language plpgsql as $$
begin
  select w.o_reused, w.o_previous_result, w.o_feedback, w.o_decision, w.o_value
    into o_reused, o_previous_result, o_feedback, o_decision, o_value
    from retoma.load_previous_work(p_run, p_step, p_item, p_revision) w;
  if o_decision = 'rejected' then
    raise exception 'a person rejected this item; this worker is too old to record that: upgrade it';
  end if;
end $$;

-- The previous result of a job that reruns with the same inputs and is not a target. Null if it must run.
create or replace function retoma.reusable_result(p_run uuid, p_step text, p_item text, p_revision int, out o_output json, out o_revision int)
stable language sql as $$
  select f.output, f.revision
    from (select j.* from retoma.jobs j
           where j.run = p_run and j.step = p_step and j.item = p_item and j.revision < p_revision and j.state <> 'cancelled'
           order by j.revision desc limit 1) f
   cross join lateral retoma.job_parameters(p_run, p_step, p_item, f.version, null, f.revision) before
   cross join lateral retoma.job_parameters(p_run, p_step, p_item, f.version, null, p_revision) now
   where f.state = 'succeeded'
     and exists (select from retoma.pending_reruns m
                  where m.run = p_run and m.revision = p_revision and m.step = p_step and m.item in (p_item, ''))
     -- Nor was it a target since then without a result.
     and not exists (select from retoma.pending_reruns m
                      where m.run = p_run and m.revision > f.revision and m.revision <= p_revision
                        and m.step = p_step and m.item in (p_item, '') and m.target)
     and before.item_value::text is not distinct from now.item_value::text and before.results::text[] = now.results::text[]
     and ('"TOO_LARGE"' = any (now.results::text[])) is not true
     -- No dependency that it does not read has run again.
     and not exists (select from retoma.edges g
                      join retoma.jobs n on n.run = p_run and n.step = g.from_step and n.revision > f.revision and n.revision <= p_revision
                     where g.version = f.version and g.to_step = p_step and g.via = '' and g.edge_kind <> 'expand'
                       and not exists (select from retoma.reads d where d.version = f.version and d.step = p_step and d.from_step = g.from_step)
                       and not exists (select from retoma.pending_reruns m
                                        where m.run = p_run and m.revision = n.revision and m.step = n.step and m.item = n.item
                                          and m.reused_from is not null));
$$;
