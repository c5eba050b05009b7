-- Start many runs in one transaction. An existing key returns its run, and a run whose id exists was started by an earlier call
-- whose answer may have been lost. With `p_notify`, wake sleeping workers.
create or replace function retoma.start_runs(
  p_id uuid[], p_tenant int[], p_version int[], p_input json[], p_key text[], p_digest bytea[],
  p_run_at timestamptz[], p_head_start bigint[], p_webhook json[], p_resumes int[], p_retries int[],
  p_deadline interval[], p_title text[], p_notify boolean)
returns table (started uuid, created boolean, same_input boolean)
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_known uuid[];
  v_same boolean[];
  v_existing uuid[];
begin
  if array_remove(p_key, null) <> '{}' then
    perform retoma.record_start_keys(v_now, p_id, p_tenant, p_version, p_key, p_digest);
    select array_agg(k.run order by k.ordinal), array_agg(k.same order by k.ordinal) into v_known, v_same
      from retoma.find_start_keys(p_tenant, p_version, p_key, p_digest) k;
    perform retoma.refuse_keys_of_removed_runs(p_id, p_key, v_known);
  end if;
  -- If an earlier call is still committing these ids, the insert fails as a duplicate and the caller repeats its call.
  v_existing := array(select r.id from retoma.runs r where r.id = any (p_id));

  return query
  with requested as materialized (
    select s.*, greatest(coalesce(s.run_at, v_now), v_now) as at,
           coalesce(s.known, s.id) = s.id and s.id <> all (v_existing) as is_new
      from unnest(p_id, p_tenant, p_version, p_input, p_run_at, p_head_start, p_resumes, p_retries, p_deadline, p_title, v_known, v_same)
           with ordinality as s (id, tenant, version, input, run_at, head_start, resumes, retries, deadline, title, known, same, ordinal)
  ), inserted as (
    insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at, watch_at, resumes,
                             retries, deadline, deadline_at, title)
    select a.id, a.tenant, a.version, case when a.at > v_now then 'pending' else 'running' end::retoma.run_state,
           v.sinks, a.input, v_now, a.at, a.at + least(v.stuck_after, a.deadline), a.resumes,
           a.retries, a.deadline, a.at + a.deadline, a.title
      from requested a
      join retoma.versions v on v.id = a.version
     where a.is_new
  ), logged as (
    insert into retoma.events (run, at, revision, kind)
    select a.id, v_now, 1, 'start' from requested a where a.is_new
  ), jobs as (
    insert into retoma.jobs (run, step, revision, version, tenant, queue, rank, state, waiting_on, ready_at, created_at, pool, review_due)
    select a.id, s.step, 1, a.version, a.tenant, s.queue,
           (extract(epoch from a.at) * 1000000)::bigint + a.ordinal - a.head_start - s.head_start,
           case when s.dependency_count = 0 then 'ready' else 'waiting' end::retoma.job_state, s.dependency_count,
           case when a.at > v_now and s.dependency_count = 0 then a.at end, v_now, s.pool, s.opens_review
      from requested a
      join retoma.steps s on s.version = a.version and s.created_on = 'start'
     where a.is_new
  )
  select coalesce(a.known, a.id), a.is_new, coalesce(a.same, true) from requested a order by a.ordinal;

  if array_remove(p_webhook::text[], null) <> '{}' then
    perform retoma.add_run_webhooks(v_now, p_id, p_tenant, p_webhook);
  end if;
  if exists (select from retoma.endpoints e where e.events is not null) then
    perform retoma.enqueue_start_deliveries(v_now, p_id);
  end if;
  if p_notify then
    perform pg_notify('retoma_ready', '');
  end if;
end $$;

-- Raise RT006 if a key has started a run that was removed since: nothing must start it again, and its id leads nowhere.
create or replace function retoma.refuse_keys_of_removed_runs(p_id uuid[], p_key text[], p_known uuid[]) returns void language plpgsql as $$
declare
  v_key text;
begin
  if p_known = p_id then
    return;  -- most keys are new
  end if;
  select s.key into v_key
    from unnest(p_id, p_key, p_known) with ordinality as s (id, key, known, ordinal)
   where s.known <> s.id and not exists (select from retoma.runs r where r.id = s.known) and s.known <> all (p_id)
   order by s.ordinal
   limit 1;
  if found then
    raise exception '%', v_key using errcode = 'RT006';
  end if;
end $$;

create or replace function retoma.record_start_keys(
  p_now timestamptz, p_id uuid[], p_tenant int[], p_version int[], p_key text[], p_digest bytea[]) returns void language sql as $$
  insert into retoma.start_keys (tenant, pipeline, key, run, digest, created_at)
  select s.tenant, v.pipeline, s.key, s.id, s.digest, p_now
    from unnest(p_id, p_tenant, p_version, p_key, p_digest)
         with ordinality as s (id, tenant, version, key, digest, ordinal)
    join retoma.versions v on v.id = s.version
   where s.key is not null
   order by s.tenant, v.pipeline, s.key, s.ordinal
      on conflict do nothing;
$$;

-- The run of each key, and whether it was started with the same input.
create or replace function retoma.find_start_keys(p_tenant int[], p_version int[], p_key text[], p_digest bytea[])
returns table (run uuid, same boolean, ordinal bigint) stable language sql as $$
  select k.run, k.digest = s.digest, s.ordinal
    from unnest(p_tenant, p_version, p_key, p_digest) with ordinality as s (tenant, version, key, digest, ordinal)
    -- Key by key, even if this was planned while there were none.
    left join lateral (
      select e.run, e.digest from retoma.start_keys e
       where e.tenant = s.tenant and e.pipeline = (select v.pipeline from retoma.versions v where v.id = s.version) and e.key = s.key
      offset 0) k on true;
$$;
