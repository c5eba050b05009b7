-- The circuit breaker of a pool. It counts consecutive failures of the provider. From the fifth on, nothing starts until
-- `open_until`, which moves further away each time. Then one job may start: if it succeeds, the breaker closes; if it fails, or
-- has no outcome within a minute, the breaker opens again.
create or replace function retoma.is_tripped(p_pool retoma.pools) returns boolean immutable language sql as $$
  select p_pool.failures >= 5;
$$;

-- How long the breaker stays open: 15 seconds, doubled with each further failure, at most five minutes.
create or replace function retoma.breaker_open_duration(p_failures int) returns interval immutable language sql as $$
  select case when p_failures >= 5 then least(interval '15 seconds' * 2 ^ least(p_failures - 5, 10), interval '5 minutes') end;
$$;

-- How long the outcome of a probe is awaited, until another job probes the provider.
create or replace function retoma.probe_timeout() returns interval immutable language sql as $$
  select interval '1 minute';
$$;

-- Let the caller's job probe a provider, if its breaker may be probed now. Returns when, or null: another job probes it, or it is open.
create or replace function retoma.claim_probe(p_pool text) returns timestamptz language sql as $$
  update retoma.pools p
     set open_until = c.at + retoma.probe_timeout(), probed_at = c.at
    from (select retoma.now() as at) c
   where p.name = p_pool and retoma.is_tripped(p) and (p.open_until > c.at) is not true
  returning p.probed_at;
$$;

-- Count failures of the provider behind a pool, of which the last job started at `p_started_at`. If it `p_rejects` our credentials, the
-- breaker opens at once, for `p_delay` at least. While a breaker is open only the probing job counts: jobs that started earlier say
-- nothing new.
create or replace function retoma.record_pool_failures(
  p_now timestamptz, p_pool text, p_failures int, p_started_at timestamptz, p_rejects boolean, p_delay interval)
returns void language plpgsql as $$
declare
  v_pool retoma.pools;
begin
  select * into v_pool from retoma.pools where name = p_pool for update;
  if retoma.is_tripped(v_pool) and not coalesce(p_started_at >= v_pool.probed_at, false) then
    return;
  end if;
  v_pool.failures := case
    when retoma.is_tripped(v_pool) then v_pool.failures + 1
    when p_rejects then 5
    else least(5, v_pool.failures + p_failures) end;
  update retoma.pools
     set failures = v_pool.failures, probed_at = null,
         open_until = greatest(p_now + retoma.breaker_open_duration(v_pool.failures), p_now + p_delay),
         trouble = case when p_rejects then 'PROVIDER_REJECTED' when retoma.is_tripped(v_pool) then 'PROVIDER_DOWN' end
   where name = p_pool;
end $$;

create or replace function retoma.close_breakers(p_pools text[]) returns void language sql as $$
  update retoma.pools
     set failures = 0, open_until = null, probed_at = null, trouble = null
   where name = any (p_pools) and failures > 0;
$$;

-- Record that providers failed these jobs, or rejected our credentials, in the pools of their steps.
create or replace function retoma.record_provider_failures(
  p_now timestamptz, p_run uuid[], p_step text[], p_item text[], p_revision int[], p_delay interval[], p_code text[])
returns void language plpgsql as $$
begin
  perform retoma.lock_pools();
  perform retoma.record_pool_failures(p_now, f.pool, f.failures, f.started_at, f.rejects, f.delay)
     from (select s.pool, count(*)::int as failures, max(j.started_at) as started_at, bool_or(f.code = 'PROVIDER_REJECTED') as rejects,
                  max(f.delay) filter (where f.code = 'PROVIDER_REJECTED') as delay
             from unnest(p_run, p_step, p_item, p_revision, p_delay, p_code) as f (run, step, item, revision, delay, code)
             join retoma.jobs j on j.run = f.run and j.step = f.step and j.item = f.item and j.revision = f.revision
             join retoma.steps s on s.version = j.version and s.step = j.step
            where f.code in ('PROVIDER_DOWN', 'PROVIDER_REJECTED') and s.pool is not null
            group by s.pool) f;
end $$;

-- Close the breakers of providers that finished these jobs, or accepted those that are parked.
create or replace function retoma.record_provider_successes(p_jobs retoma.job_key[]) returns void language plpgsql as $$
begin
  if not exists (select from retoma.pools where failures > 0) then
    return;
  end if;
  perform retoma.lock_pools();
  perform retoma.close_breakers(array(
    select j.pool
      from unnest(p_jobs) o
      join retoma.jobs j on j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
     where j.pool is not null));
end $$;

-- The codes of outcomes that concern the pools of their steps. An error of a provider in a chain names that provider, whose pool its
-- worker has informed.
create or replace function retoma.codes_for_pools(p_code text[], p_error json[]) returns text[] immutable language sql as $$
  select array(select case when o.error ->> 'provider' is null then o.code end
                 from unnest(p_code, p_error) with ordinality as o (code, error, ordinal)
                order by o.ordinal);
$$;

-- Record what workers know of providers in chains, in this order: each is `down` or `rejected` or `rate_limited`, or has `succeeded`.
-- `p_probed_at` is set if the job was the one that probed the provider.
create or replace function retoma.record_provider_reports(
  p_pool text[], p_kind text[], p_delay interval[], p_probed_at timestamptz[]) returns void language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_report record;
begin
  perform from retoma.pools where name = any (p_pool) order by name for update;
  for v_report in
    select r.* from unnest(p_pool, p_kind, p_delay, p_probed_at) with ordinality as r (pool, kind, delay, probed_at, ordinal)
     order by r.ordinal
  loop
    case v_report.kind
      when 'down' then
        perform retoma.record_pool_failures(v_now, v_report.pool, 1, v_report.probed_at, false, null);
      when 'rejected' then
        perform retoma.record_pool_failures(v_now, v_report.pool, 1, v_report.probed_at, true, v_report.delay);
      when 'rate_limited' then
        perform retoma.pause_pool(v_now, v_report.pool, v_report.delay);
      when 'succeeded' then
        perform retoma.close_breakers(array[v_report.pool]);
    end case;
  end loop;
end $$;
