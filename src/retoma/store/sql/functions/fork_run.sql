-- Create a run with another input that shares the results of an ended one, except for these steps and everything downstream.
-- Its revision 1 copies that run. Its key is one of the keys of starts: a repetition returns the first fork.
create or replace function retoma.fork_run(
  p_run uuid, p_tenant int, p_by text, p_new uuid, p_input json, p_title text, p_steps text[], p_action_key jsonb) returns jsonb
language plpgsql as $$
declare
  v_action retoma.begun_action := retoma.begin_action(p_run, p_tenant, p_action_key);
  v_now timestamptz := v_action.at;
  v_run retoma.runs := v_action.run;
  v_new retoma.runs;
  v_jobs retoma.job_key[];
  v_revision int;
begin
  if v_action.is_over then
    if v_action.answer is not null and not exists (select from retoma.runs r where r.id = (v_action.answer ->> 'run')::uuid) then
      raise exception '%', p_action_key ->> 'key' using errcode = 'RT006';
    end if;
    return v_action.answer;
  elsif v_run.ended_at is null then
    raise exception '%', v_run.state using errcode = 'RT002';
  end if;
  insert into retoma.start_keys (tenant, pipeline, key, run, digest, created_at)
  select v_run.tenant, v.pipeline, p_action_key ->> 'key', p_new, decode(p_action_key ->> 'digest', 'hex'), v_now
    from retoma.versions v where v.id = v_run.version
      on conflict do nothing;
  if not found then
    raise exception '%', p_action_key ->> 'key' using errcode = 'RT005';
  end if;
  insert into retoma.runs (id, tenant, version, final_state, open_sinks, input, created_at, run_at, watch_at, resumes, retries, deadline,
                           forked_from, title)
  values (p_new, v_run.tenant, v_run.version, case when v_run.final_state <> 'completed' then 'failed' end::retoma.run_state, 0, p_input, v_now,
          v_now, 'infinity', v_run.resumes, v_run.retries, v_run.deadline, p_run, p_title)
  returning * into v_new;
  v_new.ended_at := v_now;  -- like the run that it copies
  insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, worker, stopping, created_at, ended_at,
                           code, input, output, author)
  select p_new, s.step, s.item, 1, s.version, s.tenant, s.queue, s.rank, s.position,
         s.state, 0, s.stopping, v_now, v_now, s.code, s.input, s.output, s.author
    from retoma.current_jobs(p_run) s;
  insert into retoma.events (run, at, revision, kind, data) values (p_new, v_now, 1, 'start', json_build_object('forked_from', p_run));
  v_jobs := coalesce(retoma.find_rerun_targets(v_new, p_steps, null), '{}');
  v_jobs := v_jobs || retoma.other_jobs_without_result(v_new, v_jobs);
  -- A stale result is not shared.
  v_jobs := v_jobs || array(select (p_new, s.step, s.item, 1)::retoma.job_key from retoma.stale_jobs(p_run) s
                             where not exists (select from unnest(v_jobs) j where j.step = s.step and j.item = s.item));
  v_revision := 1 + (v_jobs <> '{}')::int;
  perform retoma.log_action(v_now, p_new, v_revision, p_by, p_action_key || jsonb_build_object(
    'action', 'fork', 'from', p_run, 'steps', p_steps, 'jobs', cardinality(v_jobs)));
  if v_jobs <> '{}' then
    perform retoma.rerun_jobs(v_now, v_new, v_jobs, '{}', null, false, false);
  else
    perform retoma.refresh_run_state(v_now, array[p_new]);
  end if;
  return retoma.record_answer(p_run, p_action_key, jsonb_build_object('run', p_new, 'revision', v_revision, 'jobs', cardinality(v_jobs)));
end $$;
