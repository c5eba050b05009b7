-- Replace a job's result by a person's. Its dependents rerun, and in a failed run also everything else without a result; with
-- `p_keep_dependents` they only become stale.
create or replace function retoma.edit_result(
  p_run uuid, p_tenant int, p_by text, p_step text, p_item text, p_value json, p_keep_dependents boolean, p_action_key jsonb)
returns jsonb language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_run, p_tenant, p_action_key);
  v_run retoma.runs := v_action.run;
  v_edited retoma.job_key[];
  v_jobs int := 0;
begin
  if v_action.is_over then
    return v_action.answer;
  end if;
  perform retoma.refuse_unless_actionable(v_run, p_keep_dependents);
  perform retoma.refuse_if_rerun_pending(v_run, p_step, p_item);
  v_edited := retoma.record_manual_results(v_action.at, v_run, p_by, array[p_step], array[p_item], 'succeeded', null, p_value);
  if v_edited is null then
    return null;
  elsif p_keep_dependents then
    update retoma.runs set revision = revision + 1 where id = p_run;
    perform retoma.resolve_failed_run(v_run);
    perform retoma.refresh_run_state(v_action.at, array[p_run]);
  else
    v_jobs := retoma.rerun_jobs(v_action.at, v_run, retoma.other_jobs_without_result(v_run, v_edited), v_edited, null, false, false);
  end if;
  return retoma.record_action(v_action, p_by, p_action_key, v_run.revision + 1, v_jobs,
                              jsonb_build_object('action', 'edit', 'step', p_step, 'item', p_item));
end $$;

-- Skip items of a step in an ended run, and everything that only they would produce.
create or replace function retoma.skip_items(
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], p_action_key jsonb) returns jsonb
language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_run, p_tenant, p_action_key);
  v_run retoma.runs := v_action.run;
  v_skipped retoma.job_key[];
  v_jobs int;
begin
  if v_action.is_over then
    return v_action.answer;
  end if;
  perform retoma.refuse_unless_actionable(v_run, true);
  with recursive chain (step) as (
    select p_step collate "C"
    union
    select g.to_step from chain c join retoma.edges g on g.version = v_run.version and g.from_step = c.step and g.same_item
  )
  select retoma.record_manual_results(v_action.at, v_run, p_by, array_agg(c.step), array_agg(i.item), 'skipped', 'SKIPPED', null) into v_skipped
    from chain c, unnest(p_items) as i (item);
  if v_skipped is null then
    return null;
  end if;
  v_jobs := retoma.rerun_jobs(v_action.at, v_run, retoma.other_jobs_without_result(v_run, v_skipped), v_skipped, null, false, false);
  return retoma.record_action(v_action, p_by, p_action_key, v_run.revision + 1, v_jobs,
                              jsonb_build_object('action', 'skip', 'step', p_step, 'items', to_jsonb(p_items)));
end $$;

-- Insert a person's rows for those of these jobs that exist. Returns their keys.
create or replace function retoma.record_manual_results(
  p_now timestamptz, p_run retoma.runs, p_by text, p_step text[], p_item text[], p_state retoma.job_state, p_code text, p_value json)
returns retoma.job_key[] language sql as $$
  with inserted as (
    insert into retoma.jobs as j (run, step, item, revision, version, tenant, queue, rank, position, state, worker, created_at,
                                  ended_at, code, input, output, author)
    select s.run, s.step, s.item, p_run.revision + 1, s.version, s.tenant, s.queue, s.rank, s.position, p_state, 0, p_now,
           p_now, p_code, s.input, p_value, p_by
      from retoma.current_jobs(p_run.id) s
      join unnest(p_step, p_item) as w (step, item) on w.step = s.step and w.item = s.item
     where s.state not in ('waiting', 'ready', 'running', 'parked')
    returning j.run, j.step, j.item, j.revision
  )
  select array_agg((run, step, item, revision)::retoma.job_key) from inserted;
$$;
