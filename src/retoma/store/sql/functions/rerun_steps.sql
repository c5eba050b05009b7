-- Rerun steps, or these items of them, and their dependents; with `p_stale`, all results with outdated inputs. With
-- `p_isolated` the dependents stay as they are; with `p_no_reuse` no job keeps its result.
create or replace function retoma.rerun_steps(
  p_run uuid, p_tenant int, p_by text, p_reason text, p_steps text[], p_items text[], p_stale boolean, p_isolated boolean, p_no_reuse boolean,
  p_action_key jsonb) returns jsonb
language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_run, p_tenant, p_action_key);
  v_run retoma.runs := v_action.run;
  v_revision int := v_run.revision + 1;
  v_jobs retoma.job_key[];
begin
  if v_action.is_over then
    return v_action.answer;
  end if;
  perform retoma.refuse_unless_actionable(v_run, p_isolated);
  v_jobs := case when p_stale then array(select s from retoma.stale_jobs(p_run) s) else retoma.find_rerun_targets(v_run, p_steps, p_items) end;
  if coalesce(v_jobs, '{}') = '{}' then
    return retoma.record_action(v_action, p_by, p_action_key, v_run.revision, 0, null);
  end if;
  v_action.answer := retoma.record_action(v_action, p_by, p_action_key, v_revision, cardinality(v_jobs), jsonb_strip_nulls(jsonb_build_object(
    'action', 'rerun', 'steps', p_steps, 'items', p_items, 'stale', p_stale, 'isolated', p_isolated, 'no_reuse', p_no_reuse, 'reason', p_reason)));
  if p_isolated then
    perform retoma.rerun_jobs_isolated(v_action.at, v_run, v_jobs);
    return v_action.answer;
  end if;
  if p_stale and not p_no_reuse then
    -- Not targets: a job with the same inputs keeps its result.
    insert into retoma.pending_reruns (run, revision, step, item, target)
    select p_run, v_revision, j.step, j.item, false from unnest(v_jobs) j;
  end if;
  perform retoma.rerun_jobs(v_action.at, v_run, v_jobs || retoma.other_jobs_without_result(v_run, v_jobs), '{}', null, p_no_reuse, false);
  return v_action.answer;
end $$;
