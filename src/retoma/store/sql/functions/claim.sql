-- Whether a worker may claim a job, as far as the job decides. The planner inlines it, so it matches the conditions of the indexes
-- of ready jobs.
create or replace function retoma.is_claimable(p_job retoma.jobs) returns boolean immutable language sql as $$
  select p_job.worker is null and p_job.waiting_on = 0 and p_job.ready_at is null;
$$;

-- The same for a job that needs no pool and is no suspect, within a queue, these versions and ranks.
create or replace function retoma.is_claimable_unpooled(p_job retoma.jobs, p_queue text, p_versions int[], p_from bigint, p_before bigint)
returns boolean immutable language sql as $$
  select p_job.queue = p_queue and p_job.version = any (p_versions) and p_job.rank >= p_from and p_job.rank < p_before
     and retoma.is_claimable(p_job) and p_job.worker_deaths = 0 and p_job.pool is null;
$$;

-- Tenants with ready jobs of these versions and ranks in a queue, each once, in turn after `p_after`. One index probe per
-- tenant.
create or replace function retoma.tenants_in_turn(
  p_queue text, p_versions int[], p_after int, p_limit int, p_from bigint, p_before bigint) returns setof int
stable language sql as $$
  with recursive later (tenant) as (
    select p_after
    union all
    select (select j.tenant from retoma.jobs j
             where j.tenant > later.tenant and retoma.is_claimable_unpooled(j, p_queue, p_versions, p_from, p_before)
             order by j.tenant limit 1)
      from later where later.tenant is not null
  ), earlier (tenant) as (
    select 0
    union all
    select (select j.tenant from retoma.jobs j
             where j.tenant > earlier.tenant and j.tenant <= p_after
               and retoma.is_claimable_unpooled(j, p_queue, p_versions, p_from, p_before)
             order by j.tenant limit 1)
      from earlier where earlier.tenant is not null
  )
  select tenant from (
    (select tenant, 1 as half from later where tenant > p_after limit p_limit)
    union all
    (select tenant, 2 from earlier where tenant > 0 limit p_limit)
  ) as turns order by half, tenant limit p_limit;
$$;

-- A claimed job as its worker receives it. The planner inlines it.
create or replace function retoma.describe_claim(p_job retoma.jobs) returns setof retoma.claimed_job stable language sql as $$
  select 'claimed', null::int, null::int, p_job.run, p_job.step, p_job.item, p_job.revision, p_job.fence, p_job.attempt, p_job.failures,
         p_job.child_crashes, p_job.worker_deaths, p_job.spent_ms, p_job.version, p_job.tenant, p.run_retries, p.run_input, p.item_value,
         p.results
    from retoma.job_parameters(p_job.run, p_job.step, p_job.item, p_job.version, p_job.input, retoma.max_revision()) p;
$$;

-- Claim these jobs, which the caller has locked, with the slots of those that need a pool.
create or replace function retoma.claim_jobs(p_worker int, p_now timestamptz, p_jobs tid[]) returns setof retoma.claimed_job
language plpgsql as $$
begin
  return query
  with taken as (
    update retoma.jobs j
       set state = 'running', worker = p_worker, fence = j.fence + 1, attempt = j.attempt + 1, started_at = p_now, code = null
     where j.ctid = any (p_jobs)
    returning j.*
  ), held as (
    insert into retoma.holdings (run, step, item, revision, pool, slots)
    select t.run, t.step, t.item, t.revision, t.pool, s.slots
      from taken t
      join retoma.steps s on s.version = t.version and s.step = t.step
     where t.pool is not null
        on conflict do nothing  -- it kept its slots
  )
  select c.* from taken t, retoma.describe_claim(row(t.*)::retoma.jobs) c
   order by t.rank, t.run, t.position;
end $$;

-- Claim up to `p_limit` ready jobs of these ranks and of versions that this worker serves: tenants take turns, and the lowest
-- rank of each goes first, except for the share of its waiting runs. At most one of the jobs is a suspect, and none unless
-- `p_suspect`.
create or replace function retoma.claim_unpooled(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_limit int, p_suspect boolean,
  p_call_number bigint, p_from bigint, p_before bigint)
returns setof retoma.claimed_job language plpgsql as $$
declare
  v_left int := p_limit;
  v_queue text;
  v_tenants int[];
  v_each int;
  v_for_waiting int;
  v_waiting bigint[];                      -- of each tenant, the rank of a waiting run
  v_jobs tid[];
  v_is_rest boolean;
begin
  if p_suspect and v_left > 0 then
    v_jobs := array(
      select c.ctid from retoma.jobs c
       where c.queue = any (p_queues) and retoma.is_claimable(c) and c.worker_deaths > 0 and c.pool is null
         and c.version = any (p_versions)
       order by c.rank limit 1 for update skip locked);
    return query select * from retoma.claim_jobs(p_worker, p_now, v_jobs);
    v_left := v_left - cardinality(v_jobs);
  end if;

  foreach v_queue in array p_queues loop
    v_is_rest := false;
    loop
      exit when v_left <= 0;
      v_tenants := array(select retoma.tenants_in_turn(v_queue, p_versions, p_after, v_left, p_from, p_before));
      exit when v_tenants = '{}';
      v_each := greatest(1, v_left / cardinality(v_tenants));
      v_for_waiting := case when v_is_rest then 0 else retoma.jobs_for_waiting_runs(v_each, p_call_number) end;
      v_waiting := null;
      if v_for_waiting > 0 then
        v_waiting := array(
          select retoma.rank_of_waiting_run(null, t.tenant, array[v_queue], p_versions, false, p_call_number, p_from, p_before)
            from unnest(v_tenants) with ordinality as t (tenant, turn)
           order by t.turn);
      end if;
      v_jobs := array(
        select c.ctid
          from unnest(v_tenants, v_waiting) as t (tenant, waiting),
               lateral retoma.ranges_to_claim(v_each, v_for_waiting, t.waiting, p_from, p_before) r,
               lateral (
                 select j.ctid from retoma.jobs j
                  where j.tenant = t.tenant and retoma.is_claimable_unpooled(j, v_queue, p_versions, r.first, r.before)
                  order by j.rank
                  limit r.jobs
                    for update skip locked) c);
      return query select * from retoma.claim_jobs(p_worker, p_now, v_jobs);
      v_left := v_left - cardinality(v_jobs);
      -- With one tenant and one range, this was everything. Otherwise distribute the rest; jobs for a waiting run may be locked.
      exit when case when v_jobs = '{}' then v_is_rest else cardinality(v_tenants) = 1 and v_waiting[1] is null end;
      v_is_rest := true;
    end loop;
  end loop;
end $$;

-- Claim up to `p_limit` jobs of these ranks, with and without pools. Every second call begins with pools, so neither kind starves
-- the other. Pools are locked last.
create or replace function retoma.claim_by_rank(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_limit int, p_suspect boolean,
  p_call_number bigint, p_from bigint, p_before bigint)
returns setof retoma.claimed_job language plpgsql as $$
declare
  v_left int := p_limit;
  v_suspect boolean := p_suspect;
  v_pooled_first boolean := p_call_number % 2 = 0;
  v_job retoma.claimed_job;
begin
  if not exists (select from retoma.jobs j
                  where retoma.is_claimable(j) and j.pool is not null
                    and j.rank >= p_from and j.rank < p_before) then
    return query select * from retoma.claim_unpooled(
      p_worker, p_now, p_queues, p_versions, p_after, p_limit, p_suspect, p_call_number, p_from, p_before);
    return;
  end if;
  for v_round in 1 .. 2 loop
    for v_job in
      select * from retoma.claim_unpooled(
        p_worker, p_now, p_queues, p_versions, p_after, v_left, v_suspect, p_call_number, p_from, p_before)
       where (v_round = 1) <> v_pooled_first
      union all
      select * from retoma.claim_pooled(p_worker, p_now, p_queues, p_versions, v_left, v_suspect, p_call_number, p_from, p_before)
       where (v_round = 1) = v_pooled_first
    loop
      v_left := v_left - (v_job.what = 'claimed')::int;
      v_suspect := v_suspect and coalesce(v_job.worker_deaths, 0) = 0;
      return next v_job;
    end loop;
  end loop;
end $$;

-- Claim as `claim_by_rank` does, but in each round only jobs of these ages. A call for a waiting run begins with the last round,
-- because the ages of different rounds are not compared.
create or replace function retoma.claim_by_age(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_limit int, p_suspect boolean,
  p_call_number bigint, p_from bigint, p_before bigint)
returns setof retoma.claimed_job language plpgsql as $$
declare
  v_is_reverse boolean := retoma.jobs_for_waiting_runs(1, p_call_number) > 0;
  v_left int := p_limit;
  v_suspect boolean := p_suspect;
  v_start bigint;
  v_job retoma.claimed_job;
begin
  for v_number in 0 .. retoma.last_round() loop
    exit when v_left <= 0;
    v_start := retoma.start_of_round(case when v_is_reverse then retoma.last_round() - v_number else v_number end);
    for v_job in
      select * from retoma.claim_by_rank(
        p_worker, p_now, p_queues, p_versions, p_after, v_left, v_suspect, p_call_number, v_start + p_from, v_start + p_before)
    loop
      v_left := v_left - (v_job.what = 'claimed')::int;
      v_suspect := v_suspect and coalesce(v_job.worker_deaths, 0) = 0;
      return next v_job;
    end loop;
  end loop;
end $$;

-- Claim as `claim_by_rank` does, and spend little time on jobs that were claimed before. While any transaction stays open, a
-- scan must skip the index entries of all jobs that were ready since it began. Once these are many, a link claims from the age
-- below which it found nothing, and rescans lower ages in a tenth of the time, or after ten seconds at the latest.
create or replace function retoma.claim_for_link(
  p_link retoma.worker_links, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_limit int, p_suspect boolean)
returns setof retoma.claimed_job language plpgsql as $$
declare
  c_first constant bigint := -9223372036854775808;
  c_last constant bigint := 9223372036854775807;
  c_many constant bigint := 20000;
  v_began timestamptz := clock_timestamp();
  v_entries_before bigint := retoma.ready_entries_read();
  v_left int := p_limit;
  v_job retoma.claimed_job;
  v_runs uuid[];
begin
  if p_link.rescan_at is null then
    return query select * from retoma.claim_by_rank(
      p_link.worker, p_now, p_queues, p_versions, p_after, p_limit, p_suspect, p_link.call_number, c_first, c_last);
    if retoma.ready_entries_read() > v_entries_before + c_many then
      p_link.rescan_at := v_began;
      perform retoma.schedule_rescan(p_link);
    end if;
    return;
  end if;
  if v_began >= p_link.rescan_at then
    p_link.claim_from_rank := (extract(epoch from p_now - interval '1 second') * 1000000)::bigint;
    for v_job in
      select * from retoma.claim_by_age(
        p_link.worker, p_now, p_queues, p_versions, p_after, p_limit, p_suspect, p_link.call_number, 0, p_link.claim_from_rank)
    loop
      v_left := v_left - (v_job.what = 'claimed')::int;
      v_runs := v_runs || v_job.run;
      return next v_job;
    end loop;
    if v_left <= 0 then
      select min(retoma.age_in_rank(j.rank)) into p_link.claim_from_rank
        from retoma.jobs j where j.run = any (v_runs) and j.worker = p_link.worker and j.state = 'running';
    end if;
    p_link.rescan_at := case when retoma.ready_entries_read() > v_entries_before + c_many
                             then clock_timestamp() + least(9 * (clock_timestamp() - v_began), interval '10 seconds') end;
    perform retoma.schedule_rescan(p_link);
  end if;
  if v_left > 0 then
    return query select * from retoma.claim_by_age(
      p_link.worker, p_now, p_queues, p_versions, p_after, v_left, p_suspect and v_left = p_limit, p_link.call_number,
      p_link.claim_from_rank, retoma.start_of_round(1));
  end if;
end $$;

-- The number of index entries of ready jobs that this transaction has read, including entries of jobs that are no longer ready.
create or replace function retoma.ready_entries_read() returns bigint language sql as $$
  select pg_stat_get_xact_tuples_returned('retoma.jobs_ready_by_queue'::regclass)
       + pg_stat_get_xact_tuples_returned('retoma.jobs_ready_by_pool'::regclass);
$$;

create or replace function retoma.schedule_rescan(p_link retoma.worker_links) returns void language sql as $$
  update retoma.worker_links set rescan_at = p_link.rescan_at, claim_from_rank = p_link.claim_from_rank
   where worker = p_link.worker and link = p_link.link and call_block = p_link.call_block;
$$;

-- The jobs that a worker holds, as claimed: what it receives again after a lost answer.
create or replace function retoma.claimed_jobs_of_worker(p_worker int) returns setof retoma.claimed_job
stable language sql as $$
  select c.* from retoma.running_jobs_of_worker(p_worker) j, retoma.describe_claim(j) c;
$$;

create or replace function retoma.running_jobs_of_worker(p_worker int) returns setof retoma.jobs stable language sql as $$
  select j.* from retoma.running_jobs() j where j.worker = p_worker;
$$;

-- Searches the open runs one by one: no index contains a column that finishing a job writes, and the planner must not scan all
-- jobs instead.
create or replace function retoma.running_jobs() returns setof retoma.jobs stable language sql as $$
  select j.*
    from (select r.id from retoma.runs r where r.ended_at is null and r.state <> 'pending' offset 0) r,
         lateral (select * from retoma.jobs j where j.run = r.id and j.state = 'running' offset 0) j;
$$;
