-- Whether a job waits for its next attempt, after one that failed or asked to wait. A job of a run that starts later has no code.
create or replace function retoma.waits_for_retry(p_job retoma.jobs) returns boolean immutable language sql as $$
  select p_job.ready_at is not null and p_job.code is not null and p_job.state = 'ready' and not p_job.stopping;
$$;

-- Let a job that waits for its next attempt start now. Returns whether it was waiting.
create or replace function retoma.retry_job(p_run uuid, p_step text, p_item text, p_revision int, p_tenant int, p_by text) returns boolean
language plpgsql as $$
begin
  update retoma.jobs j set ready_at = null
   where j.run = p_run and j.step = p_step and j.item = p_item and j.revision = p_revision
     and (p_tenant is null or j.tenant = p_tenant) and retoma.waits_for_retry(j);
  if found then
    perform retoma.log_action(retoma.now(), p_run, p_revision, p_by, jsonb_build_object('action', 'retry_now', 'step', p_step, 'item', p_item));
  end if;
  return found;
end $$;

-- Whether a run matches the filter of a bulk action: null means any. Inlined.
create or replace function retoma.matches_bulk_filter(
  p_run retoma.runs, p_tenant int, p_states text[], p_first uuid, p_versions int[], p_title text) returns boolean
stable language sql as $$
  select retoma.matches_filter(p_run, p_tenant, p_states, null, p_first)
     and (p_versions is null or p_run.version = any (p_versions))
     and (p_title is null or position(p_title in lower(p_run.title)) > 0);
$$;

-- What an action of this kind would act on now, the oldest first.
create or replace function retoma.select_bulk_targets(p_kind text, p_tenant int, p_filter jsonb, p_limit int)
returns table (subject uuid, run uuid, step text, item text, revision int)
stable language plpgsql as $$
#variable_conflict use_column
declare
  v_states text[] := case when p_filter ? 'states' then array(select jsonb_array_elements_text(p_filter -> 'states')) end;
  v_first uuid := p_filter ->> 'first';
  v_versions int[] := case when p_filter ? 'pipelines' then array(select v.id from retoma.versions v where p_filter -> 'pipelines' ? v.pipeline) end;
  v_title text := lower(p_filter ->> 'title');
  -- Those of a person who may not act on all of them.
  v_tenants int[] := case when p_filter ? 'tenants' then array(select jsonb_array_elements_text(p_filter -> 'tenants')::int) end;
begin
  case p_kind
    when 'cancel_runs' then
      return query
      select r.id, r.id, null::text, null::text, null::int
        from retoma.runs r
       where r.ended_at is null and r.state <> 'cancelling'
         and retoma.matches_bulk_filter(r, p_tenant, v_states, v_first, v_versions, v_title)
         and (v_tenants is null or r.tenant = any (v_tenants))
       order by r.id
       limit p_limit;
    when 'rerun_failed' then
      return query
      select r.id, r.id, null::text, null::text, null::int
        from retoma.runs r
       where r.ended_at is not null and r.state <> 'completed' and r.state in ('failed', 'completed_with_errors')
         and retoma.matches_bulk_filter(r, p_tenant, v_states, v_first, v_versions, v_title)
         and (v_tenants is null or r.tenant = any (v_tenants))
       order by r.id
       limit p_limit;
    when 'redeliver' then
      return query
      select d.id, d.run, null::text, null::text, null::int
        from retoma.deliveries d
        join retoma.endpoints e on e.id = d.endpoint and e.disabled_at is null
       where d.state = 'dead'
         and (p_tenant is null or d.tenant = p_tenant)
         and (v_tenants is null or d.tenant = any (v_tenants))
         and (not p_filter ? 'pipelines' or p_filter -> 'pipelines' ? d.pipeline)
         and (not p_filter ? 'endpoint' or d.endpoint = (p_filter ->> 'endpoint')::int)
         and (not p_filter ? 'since' or d.created_at >= (p_filter ->> 'since')::timestamptz)
       order by d.number
       limit p_limit;
    when 'retry_jobs' then
      return query
      select j.run, j.run, j.step, j.item, j.revision
        from retoma.jobs j
       where j.ready_at is not null and retoma.waits_for_retry(j)
         and (p_tenant is null or j.tenant = p_tenant)
         and (v_tenants is null or j.tenant = any (v_tenants))
         and (v_versions is null or j.version = any (v_versions))
         and (not p_filter ? 'queue' or j.queue = p_filter ->> 'queue')
         and (not p_filter ? 'step' or j.step = p_filter ->> 'step')
         and (not p_filter ? 'code' or j.code = p_filter ->> 'code')
       order by j.ready_at, j.run, j.step, j.item
       limit p_limit;
  end case;
end $$;

-- Choose the targets of an action, once for each id. Returns how many there are, or null if they are more than `p_expected`: then
-- nothing was created.
create or replace function retoma.create_bulk_action(
  p_id uuid, p_kind text, p_tenant int, p_filter jsonb, p_by text, p_expected int, p_limit int) returns int
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_total int;
begin
  insert into retoma.bulk_actions (id, kind, tenant, filter, requested_by, created_at, total)
  values (p_id, p_kind, p_tenant, p_filter, p_by, v_now, 0)
      on conflict (id) do nothing;
  if not found then
    return (select total from retoma.bulk_actions where id = p_id);
  end if;
  insert into retoma.bulk_targets (action, number, subject, step, item, revision)
  select p_id, row_number() over (), t.subject, t.step, t.item, t.revision
    from retoma.select_bulk_targets(p_kind, p_tenant, p_filter, p_limit) t;
  get diagnostics v_total = row_count;
  if v_total > p_expected then
    delete from retoma.bulk_targets where action = p_id;
    delete from retoma.bulk_actions where id = p_id;
    return null;
  end if;
  update retoma.bulk_actions set total = v_total, ended_at = case when v_total = 0 then v_now end where id = p_id;
  return v_total;
end $$;

-- Act on the next target of an action. Returns false if there is none left, and then the action has ended.
create or replace function retoma.advance_bulk_action(p_id uuid) returns boolean language plpgsql as $$
declare
  v_target retoma.bulk_targets;
  v_is_done boolean;
begin
  -- Several processes may work on one action: each takes another target.
  select * into v_target from retoma.bulk_targets where action = p_id order by number limit 1 for update skip locked;
  if not found then
    update retoma.bulk_actions set ended_at = retoma.now()
     where id = p_id and ended_at is null and not exists (select from retoma.bulk_targets where action = p_id);
    return false;
  end if;
  begin
    v_is_done := retoma.perform_bulk_target(a, v_target) from retoma.bulk_actions a where a.id = p_id;
  exception
    when deadlock_detected or serialization_failure or query_canceled or admin_shutdown then
      raise;
    when others then  -- it is in another state than when it was chosen
      v_is_done := false;
  end;
  delete from retoma.bulk_targets where action = p_id and number = v_target.number;
  update retoma.bulk_actions set done = done + v_is_done::int, skipped = skipped + (not v_is_done)::int where id = p_id;
  return true;
end $$;

-- Returns whether there was anything to do.
create or replace function retoma.perform_bulk_target(p_action retoma.bulk_actions, p_target retoma.bulk_targets) returns boolean
language plpgsql as $$
declare
  v_key jsonb := jsonb_build_object('key', 'bulk ' || p_action.id, 'digest', p_action.kind);
begin
  return case p_action.kind
    when 'cancel_runs' then
      retoma.cancel_run(p_target.subject, p_action.tenant, p_action.requested_by, v_key) in ('cancelling', 'cancelled')
    when 'rerun_failed' then
      (retoma.rerun_failed(p_target.subject, p_action.tenant, p_action.requested_by, null, null, v_key) ->> 'jobs')::int > 0
    when 'redeliver' then
      retoma.redeliver(p_action.tenant, p_target.subject, null, null, null, null) > 0
    when 'retry_jobs' then
      retoma.retry_job(p_target.subject, p_target.step, p_target.item, p_target.revision, p_action.tenant, p_action.requested_by)
  end is true;
end $$;

-- Do not act on the targets that are left. Returns whether the action was still in progress.
create or replace function retoma.abort_bulk_action(p_id uuid, p_by text) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  -- Targets first: who acts on one holds it, and then updates the action.
  delete from retoma.bulk_targets where action = p_id;
  update retoma.bulk_actions set aborted_at = v_now, aborted_by = p_by, ended_at = v_now where id = p_id and ended_at is null;
  return found;
end $$;
