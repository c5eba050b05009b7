-- Start many runs in one transaction. With `p_notify`, wake sleeping workers.
create or replace function retoma.start_runs(
  p_id uuid[], p_tenant int[], p_version int[], p_input json[], p_key text[], p_digest bytea[],
  p_run_at timestamptz[], p_head_start bigint[], p_webhook json[], p_resumes int[], p_retries int[],
  p_deadline interval[], p_title text[], p_notify boolean)
returns table (started uuid, created boolean, same_input boolean)
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  if array_remove(p_key, null) <> '{}' or exists (select from retoma.runs r where r.id = any (p_id)) then
    return query select * from retoma.start_carefully(v_now, p_id, p_tenant, p_version, p_input, p_key, p_digest, p_run_at, p_head_start,
                                                      p_resumes, p_retries, p_deadline, p_title);
  else
    return query select * from retoma.start_new(v_now, p_id, p_tenant, p_version, p_input, p_run_at, p_head_start,
                                                p_resumes, p_retries, p_deadline, p_title);
  end if;
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

-- Runs without keys, none of which exists yet.
create or replace function retoma.start_new(
  p_now timestamptz, p_id uuid[], p_tenant int[], p_version int[], p_input json[], p_run_at timestamptz[], p_head_start bigint[],
  p_resumes int[], p_retries int[], p_deadline interval[], p_title text[])
returns table (started uuid, created boolean, same_input boolean)
language plpgsql as $$
begin
  return query
  with requested as materialized (
    select s.*, greatest(coalesce(s.run_at, p_now), p_now) as at
      from unnest(p_id, p_tenant, p_version, p_input, p_run_at, p_head_start, p_resumes, p_retries, p_deadline, p_title)
           with ordinality as s (id, tenant, version, input, run_at, head_start, resumes, retries, deadline, title, ordinal)
  ), started as (
    insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at, watch_at, resumes,
                             retries, deadline, deadline_at, title)
    select a.id, a.tenant, a.version, case when a.at > p_now then 'pending' else 'running' end::retoma.run_state,
           v.sinks, a.input, p_now, a.at, a.at + least(v.stuck_after, a.deadline), a.resumes,
           a.retries, a.deadline, a.at + a.deadline, a.title
      from requested a
      join retoma.versions v on v.id = a.version
  ), logged as (
    insert into retoma.events (run, at, revision, kind)
    select id, p_now, 1, 'start' from requested
  ), created as (
    insert into retoma.jobs (run, step, revision, version, tenant, queue, rank, state, waiting_on, ready_at, created_at, pool)
    select a.id, s.step, 1, a.version, a.tenant, s.queue,
           (extract(epoch from a.at) * 1000000)::bigint + a.ordinal - a.head_start - s.head_start,
           case when s.dependency_count = 0 then 'ready' else 'waiting' end::retoma.job_state, s.dependency_count,
           case when a.at > p_now and s.dependency_count = 0 then a.at end, p_now, s.pool
      from requested a
      join retoma.steps s on s.version = a.version and s.created_on = 'start'
  )
  select a.id, true, true from requested a order by a.ordinal;
end $$;

-- The same with keys, and for a repeated call whose first answer may have been lost. A run whose id exists was started by that
-- call; an existing key returns its run.
create or replace function retoma.start_carefully(
  p_now timestamptz, p_id uuid[], p_tenant int[], p_version int[], p_input json[], p_key text[], p_digest bytea[],
  p_run_at timestamptz[], p_head_start bigint[], p_resumes int[], p_retries int[],
  p_deadline interval[], p_title text[])
returns table (started uuid, created boolean, same_input boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_keyed boolean := array_remove(p_key, null) <> '{}';
begin
  if v_keyed then
    insert into retoma.start_keys (tenant, pipeline, key, run, digest, created_at)
    select s.tenant, v.pipeline, s.key, s.id, s.digest, p_now
      from unnest(p_id, p_tenant, p_version, p_key, p_digest)
           with ordinality as s (id, tenant, version, key, digest, ordinal)
      join retoma.versions v on v.id = s.version
     where s.key is not null
     order by s.tenant, v.pipeline, s.key, s.ordinal
        on conflict do nothing;
  end if;

  return query
  with requested as materialized (
    select s.*, k.run as known, k.digest = s.digest as same, greatest(coalesce(s.run_at, p_now), p_now) as at
      from unnest(p_id, p_tenant, p_version, p_input, p_key, p_digest, p_run_at, p_head_start, p_resumes, p_retries, p_deadline, p_title)
           with ordinality as s (id, tenant, version, input, key, digest, run_at, head_start, resumes, retries, deadline, title, ordinal)
      join retoma.versions v on v.id = s.version
      left join retoma.start_keys k
        on v_keyed and k.tenant = s.tenant and k.pipeline = v.pipeline and k.key = s.key
  ), started as (
    insert into retoma.runs (id, tenant, version, state, open_sinks, input, created_at, run_at, watch_at, resumes,
                             retries, deadline, deadline_at, title)
    select a.id, a.tenant, a.version, case when a.at > p_now then 'pending' else 'running' end::retoma.run_state,
           v.sinks, a.input, p_now, a.at, a.at + least(v.stuck_after, a.deadline), a.resumes,
           a.retries, a.deadline, a.at + a.deadline, a.title
      from requested a
      join retoma.versions v on v.id = a.version
     where a.known is null or a.known = a.id
     order by a.id
        on conflict do nothing
    returning id
  ), logged as (
    insert into retoma.events (run, at, revision, kind)
    select id, p_now, 1, 'start' from started
  ), created as (
    insert into retoma.jobs (run, step, revision, version, tenant, queue, rank, state, waiting_on, ready_at, created_at, pool)
    select a.id, s.step, 1, a.version, a.tenant, s.queue,
           (extract(epoch from a.at) * 1000000)::bigint + a.ordinal - a.head_start - s.head_start,
           case when s.dependency_count = 0 then 'ready' else 'waiting' end::retoma.job_state, s.dependency_count,
           case when a.at > p_now and s.dependency_count = 0 then a.at end, p_now, s.pool
      from started
      join requested a on a.id = started.id
      join retoma.steps s on s.version = a.version and s.created_on = 'start'
  )
  select coalesce(a.known, a.id), exists (select from started where started.id = a.id), coalesce(a.same, true)
    from requested a
   order by a.ordinal;
end $$;
