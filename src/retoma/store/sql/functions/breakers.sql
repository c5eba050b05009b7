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

-- Record that providers failed these jobs, or rejected our credentials, which opens the breaker at once. While a breaker is
-- open only the probing job counts: jobs that started earlier say nothing new.
create or replace function retoma.record_provider_failures(
  p_now timestamptz, p_run uuid[], p_step text[], p_item text[], p_revision int[], p_delay interval[], p_code text[])
returns void language plpgsql as $$
declare
  v_failed record;
  v_pool retoma.pools;
begin
  perform retoma.lock_pools();
  for v_failed in
    select s.pool, count(*)::int as failures, max(j.started_at) as started_at, bool_or(f.code = 'PROVIDER_REJECTED') as refuses,
           max(f.delay) filter (where f.code = 'PROVIDER_REJECTED') as delay
      from unnest(p_run, p_step, p_item, p_revision, p_delay, p_code) as f (run, step, item, revision, delay, code)
      join retoma.jobs j on j.run = f.run and j.step = f.step and j.item = f.item and j.revision = f.revision
      join retoma.steps s on s.version = j.version and s.step = j.step
     where f.code in ('PROVIDER_DOWN', 'PROVIDER_REJECTED') and s.pool is not null
     group by s.pool
     order by s.pool
  loop
    select * into v_pool from retoma.pools where name = v_failed.pool;
    continue when retoma.is_tripped(v_pool) and not coalesce(v_failed.started_at >= v_pool.probed_at, false);
    v_pool.failures := case
      when retoma.is_tripped(v_pool) then v_pool.failures + 1
      when v_failed.refuses then 5
      else least(5, v_pool.failures + v_failed.failures) end;
    update retoma.pools
       set failures = v_pool.failures, probed_at = null,
           open_until = greatest(p_now + retoma.breaker_open_duration(v_pool.failures), p_now + v_failed.delay),
           trouble = case when v_failed.refuses then 'PROVIDER_REJECTED' when retoma.is_tripped(v_pool) then 'PROVIDER_DOWN' end
     where name = v_failed.pool;
  end loop;
end $$;

-- Close the breakers of providers that finished these jobs, or accepted those that are parked.
create or replace function retoma.record_provider_successes(p_jobs retoma.job_key[]) returns void language plpgsql as $$
begin
  if not exists (select from retoma.pools where failures > 0) then
    return;
  end if;
  perform retoma.lock_pools();
  update retoma.pools p
     set failures = 0, open_until = null, probed_at = null, trouble = null
   where p.failures > 0 and p.name in (
     select j.pool
       from unnest(p_jobs) o
       join retoma.jobs j on j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision);
end $$;
