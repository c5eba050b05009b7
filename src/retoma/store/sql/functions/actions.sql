-- Begin an action of a person on a run: lock the run, and find the answer of an earlier call under the same key. Without
-- `p_lock_jobs` the action locks the jobs itself.
create or replace function retoma.begin_action(p_run uuid, p_tenant int, p_action_key jsonb, p_lock_jobs boolean default true)
returns retoma.begun_action language plpgsql as $$
declare
  v_run retoma.runs;
  v_answer jsonb;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if p_lock_jobs then
    perform retoma.lock_run_for_action(p_run, p_tenant);
  end if;
  select * into v_run from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant);
  v_answer := retoma.find_answer(v_run.id, p_action_key);
  return row(v_run, retoma.now(), v_run.id is null or v_answer is not null, v_answer);
end $$;

-- Record what an action did: its answer, so that every repetition gets the same, and, if it made a revision, who requested it.
-- Returns the answer.
create or replace function retoma.record_action(
  p_action retoma.begun_action, p_by text, p_action_key jsonb, p_revision int, p_jobs int, p_data jsonb) returns jsonb
language plpgsql as $$
begin
  if p_revision > (p_action.run).revision then
    perform retoma.log_action(p_action.at, (p_action.run).id, p_revision, p_by, p_action_key || p_data || jsonb_build_object('jobs', p_jobs));
  end if;
  return retoma.record_answer((p_action.run).id, p_action_key, jsonb_build_object('revision', p_revision, 'jobs', p_jobs));
end $$;

-- Lock a run for an action, with all its jobs that have not ended, so that reruns and jobs that end at the same time see each
-- other. Returns null if the tenant has no such run.
create or replace function retoma.lock_run_for_action(p_run uuid, p_tenant int) returns retoma.runs language plpgsql as $$
declare
  v_run retoma.runs;
  v_before text;
  v_after text;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  loop
    v_before := v_after;
    -- First running and ready jobs, then those that wait for them, each by key, as transactions that end jobs do.
    perform from retoma.jobs where run = p_run and state in ('running', 'parked', 'ready') order by step, item, revision for update;
    perform from retoma.jobs where run = p_run and state = 'waiting' order by step, item, revision for update;
    -- Jobs that ended while we waited have created others.
    select md5(string_agg(format('%s %s %s %s', j.step, j.item, j.revision, j.state), ',' order by j.step, j.item, j.revision))
      into v_after from retoma.jobs j where j.run = p_run and j.state in ('waiting', 'ready', 'running', 'parked');
    exit when v_after is not distinct from v_before;
  end loop;
  select * into v_run from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant) for update;
  return v_run;
end $$;

-- Refuse actions on a run that is stopping or was ended by a person; with `p_over`, on any run that has not ended.
create or replace function retoma.refuse_unless_actionable(p_run retoma.runs, p_over boolean) returns void language plpgsql as $$
begin
  if p_run.state = 'pending' or not retoma.can_run(p_run.state)
     or p_run.ended_at is null and (p_over or p_run.final_state is not null) then
    raise exception '%', p_run.state using errcode = 'RT002';
  end if;
end $$;

-- Log an action on a run, and who requested it.
create or replace function retoma.log_action(p_now timestamptz, p_run uuid, p_revision int, p_by text, p_data jsonb)
returns void language sql as $$
  insert into retoma.events (run, at, revision, kind, data)
  values (p_run, p_now, p_revision, 'action', (jsonb_build_object('by', p_by) || p_data)::json);
$$;

-- The recorded answer of an action on this run or review under this key, or null. Raises RT005 if the key came with another
-- request.
create or replace function retoma.find_answer(p_subject uuid, p_action_key jsonb) returns jsonb language plpgsql as $$
declare
  v_known retoma.action_keys;
begin
  select * into v_known from retoma.action_keys where subject = p_subject and key = p_action_key ->> 'key';
  if v_known.digest <> p_action_key ->> 'digest' then
    raise exception '%', p_action_key ->> 'key' using errcode = 'RT005';
  end if;
  return v_known.answer;
end $$;

-- Record the answer of an action in its transaction, so every repetition gets the same answer, and return it.
create or replace function retoma.record_answer(p_subject uuid, p_action_key jsonb, p_answer jsonb) returns jsonb language sql as $$
  insert into retoma.action_keys (subject, key, digest, answer, created_at)
  select p_subject, p_action_key ->> 'key', p_action_key ->> 'digest', p_answer, retoma.now()
   where p_action_key ->> 'key' is not null
      on conflict do nothing;
  select p_answer;
$$;
