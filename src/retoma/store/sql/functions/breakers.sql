-- A pool's breaker. Its provider's failures in a row are counted; from the fifth on nothing begins until `open_until`, which
-- is further away each time. Then one job may begin: if it succeeds, all may; if it fails, or tells nothing within a minute,
-- it is as before.
create or replace function retoma.is_tripped(p_pool retoma.pools) returns boolean immutable language sql as $$
  select p_pool.failures >= 5;
$$;

-- How long nothing begins after so many failures: 15 seconds, twice as long each time, five minutes at most.
create or replace function retoma.open_for(p_failures int) returns interval immutable language sql as $$
  select case when p_failures >= 5 then least(interval '15 seconds' * 2 ^ least(p_failures - 5, 10), interval '5 minutes') end;
$$;

-- Providers have failed these jobs, or refuse us, which is not worth a second try. While a breaker is open only the job that
-- tries counts: what began before tells nothing new.
create or replace function retoma.note_failures(
  p_now timestamptz, p_run uuid[], p_step text[], p_item text[], p_revision int[], p_delay interval[], p_code text[])
returns void language plpgsql as $$
declare
  v_failed record;
  v_pool retoma.pools;
begin
  perform retoma.lock_pools();
  for v_failed in
    select s.pool, count(*)::int as failures, max(j.started_at) as began_at, bool_or(f.code = 'PROVIDER_REFUSES') as refuses,
           max(f.delay) filter (where f.code = 'PROVIDER_REFUSES') as delay
      from unnest(p_run, p_step, p_item, p_revision, p_delay, p_code) as f (run, step, item, revision, delay, code)
      join retoma.jobs j on j.run = f.run and j.step = f.step and j.item = f.item and j.revision = f.revision
      join retoma.steps s on s.version = j.version and s.step = j.step
     where f.code in ('PROVIDER_DOWN', 'PROVIDER_REFUSES') and s.pool is not null
     group by s.pool
     order by s.pool
  loop
    select * into v_pool from retoma.pools where name = v_failed.pool;
    continue when retoma.is_tripped(v_pool) and not coalesce(v_failed.began_at >= v_pool.probed_at, false);
    v_pool.failures := case
      when retoma.is_tripped(v_pool) then v_pool.failures + 1
      when v_failed.refuses then 5
      else least(5, v_pool.failures + v_failed.failures) end;
    update retoma.pools
       set failures = v_pool.failures, probed_at = null,
           open_until = greatest(p_now + retoma.open_for(v_pool.failures), p_now + v_failed.delay),
           trouble = case when v_failed.refuses then 'PROVIDER_REFUSES' when retoma.is_tripped(v_pool) then 'PROVIDER_DOWN' end
     where name = v_failed.pool;
  end loop;
end $$;

-- Providers have done these jobs, or taken those that are parked: their breakers close.
create or replace function retoma.note_successes(p_jobs retoma.handle[]) returns void language plpgsql as $$
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
