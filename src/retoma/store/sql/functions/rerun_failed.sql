-- Rerun what has no result in an ended run. With `p_step`, only that step; with `p_items`, only these items of it. Returns the
-- revision and the number of jobs. A repetition while the rerun is in progress gets the same answer.
create or replace function retoma.rerun_failed(
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], p_action_key jsonb) returns jsonb
language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_run, p_tenant, p_action_key);
  v_run retoma.runs := v_action.run;
  v_data jsonb := jsonb_build_object('action', 'rerun_failed', 'step', p_step, 'items', p_items);
  v_jobs retoma.job_key[];
  v_count int;
begin
  if v_action.is_over then
    return v_action.answer;
  end if;
  if v_run.ended_at is null and v_run.final_state is null then
    select (e.data ->> 'jobs')::int into v_count
      from retoma.events e
     where e.run = p_run and e.kind = 'action' and e.revision = v_run.revision and e.data::jsonb @> v_data
     order by e.id desc limit 1;
    if found then
      return retoma.record_action(v_action, p_by, p_action_key, v_run.revision, v_count, v_data);
    end if;
  end if;
  perform retoma.refuse_unless_actionable(v_run, true);
  select array_agg(l order by l.step, l.item) into v_jobs
    from retoma.jobs_without_result(v_run) l
   where (p_step is null or l.step = p_step) and (p_items is null or l.item = any (p_items));
  v_count := coalesce(cardinality(v_jobs), 0);
  v_action.answer := retoma.record_action(v_action, p_by, p_action_key, v_run.revision + sign(v_count)::int, v_count, v_data);
  if v_count > 0 then
    perform retoma.rerun_jobs(v_action.at, v_run, v_jobs, '{}', null, false, false);
  end if;
  return v_action.answer;
end $$;
