-- Tenants with ready jobs of these versions and ranks in a queue, each once, in turn after `p_after`. One index probe per
-- tenant.
create or replace function retoma.tenants_in_turn(
  p_queue text, p_versions int[], p_after int, p_limit int, p_from bigint, p_before bigint) returns setof int
stable language sql as $$
  with recursive later as (
    (select j.tenant from retoma.jobs j
      where j.queue = p_queue and j.tenant > p_after and j.version = any (p_versions)
        and j.rank >= p_from and j.rank < p_before
        and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.worker_deaths = 0 and j.pool is null
      order by j.tenant limit 1)
    union all
    select (select j.tenant from retoma.jobs j
             where j.queue = p_queue and j.tenant > later.tenant and j.version = any (p_versions)
               and j.rank >= p_from and j.rank < p_before
               and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.worker_deaths = 0 and j.pool is null
             order by j.tenant limit 1)
      from later where later.tenant is not null
  ), earlier as (
    (select j.tenant from retoma.jobs j
      where j.queue = p_queue and j.tenant <= p_after and j.version = any (p_versions)
        and j.rank >= p_from and j.rank < p_before
        and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.worker_deaths = 0 and j.pool is null
      order by j.tenant limit 1)
    union all
    select (select j.tenant from retoma.jobs j
             where j.queue = p_queue and j.tenant > earlier.tenant and j.tenant <= p_after and j.version = any (p_versions)
               and j.rank >= p_from and j.rank < p_before
               and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.worker_deaths = 0 and j.pool is null
             order by j.tenant limit 1)
      from earlier where earlier.tenant is not null
  )
  select tenant from (
    (select tenant, 1 as half from later where tenant is not null limit p_limit)
    union all
    (select tenant, 2 from earlier where tenant is not null limit p_limit)
  ) as turns order by half, tenant limit p_limit;
$$;

-- Claim up to `p_room` ready jobs of these ranks and of versions that this worker serves: tenants take turns, and the lowest
-- rank of each goes first. At most one of the jobs is a suspect, and none unless `p_suspect`. A job of a stopping run that may
-- have external work is claimed as 'last': its attempt may only find that work, to end it.
create or replace function retoma.claim_unpooled(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_room int, p_suspect boolean,
  p_from bigint, p_before bigint)
returns setof retoma.claimed_job language plpgsql as $$
declare
  v_left int := p_room;
  v_got int;
  v_queue text;
  v_tenants int[];
begin
  if p_suspect and v_left > 0 then
    return query
    with taken as (
      update retoma.jobs j
         set state = 'running', worker = p_worker, fence = j.fence + 1, attempt = j.attempt + 1, started_at = p_now, code = null
       where j.ctid = any (array(
         select c.ctid from retoma.jobs c
          where c.queue = any (p_queues) and c.worker is null and c.waiting_on = 0 and c.ready_at is null and c.worker_deaths > 0 and c.pool is null
            and c.version = any (p_versions)
          order by c.rank limit 1 for update skip locked))
      returning j.*)
    select case when t.stopping then 'last' else 'claimed' end, t.run, t.step, t.item, t.revision, t.fence, t.attempt::int, t.failures::int, t.worker_deaths::int, t.spent_ms, t.version,
           t.tenant, p.run_input, p.item_value, p.results
      from taken t, retoma.job_parameters(t.run, t.step, t.item, t.version, t.input, retoma.max_revision()) p;
    get diagnostics v_got = row_count;
    v_left := v_left - v_got;
  end if;

  foreach v_queue in array p_queues loop
    loop
      exit when v_left <= 0;
      v_tenants := array(select retoma.tenants_in_turn(v_queue, p_versions, p_after, v_left, p_from, p_before));
      exit when v_tenants = '{}';
      return query
      with taken as (
        update retoma.jobs j
           set state = 'running', worker = p_worker, fence = j.fence + 1, attempt = j.attempt + 1, started_at = p_now, code = null
         where j.ctid = any (array(
           select r.ctid
             from unnest(v_tenants) as t (tenant),
                  lateral (
                    select c.ctid from retoma.jobs c
                     where c.queue = v_queue and c.tenant = t.tenant
                       and c.worker is null and c.waiting_on = 0 and c.ready_at is null and c.worker_deaths = 0 and c.pool is null
                       and c.rank >= p_from and c.rank < p_before and c.version = any (p_versions)
                     order by c.rank
                     limit greatest(1, v_left / cardinality(v_tenants))
                       for update skip locked) r))
        returning j.*)
      select case when t.stopping then 'last' else 'claimed' end, t.run, t.step, t.item, t.revision, t.fence, t.attempt::int, t.failures::int, t.worker_deaths::int, t.spent_ms, t.version,
             t.tenant, p.run_input, p.item_value, p.results
        from taken t, retoma.job_parameters(t.run, t.step, t.item, t.version, t.input, retoma.max_revision()) p;
      get diagnostics v_got = row_count;
      v_left := v_left - v_got;
      -- With one tenant, one round takes everything. With several, another round distributes the rest.
      exit when v_got = 0 or cardinality(v_tenants) = 1;
    end loop;
  end loop;
end $$;

-- Claim up to `p_room` jobs of these ranks, with and without pools. `p_pooled_first` alternates, so neither kind starves the
-- other. Pools are locked last.
create or replace function retoma.claim_by_rank(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_room int, p_suspect boolean,
  p_pooled_first boolean, p_from bigint, p_before bigint)
returns setof retoma.claimed_job language plpgsql as $$
declare
  v_left int := p_room;
  v_suspect boolean := p_suspect;
  v_job retoma.claimed_job;
begin
  if not exists (select from retoma.jobs j
                  where j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.pool is not null
                    and j.rank >= p_from and j.rank < p_before) then
    return query select * from retoma.claim_unpooled(p_worker, p_now, p_queues, p_versions, p_after, p_room, p_suspect, p_from, p_before);
    return;
  end if;
  for v_round in 1 .. 2 loop
    for v_job in
      select * from retoma.claim_unpooled(p_worker, p_now, p_queues, p_versions, p_after, v_left, v_suspect, p_from, p_before)
       where (v_round = 1) <> p_pooled_first
      union all
      select * from retoma.claim_pooled(p_worker, p_now, p_queues, p_versions, v_left, v_suspect, p_from, p_before)
       where (v_round = 1) = p_pooled_first
    loop
      v_left := v_left - (v_job.what in ('claimed', 'last'))::int;
      v_suspect := v_suspect and coalesce(v_job.worker_deaths, 0) = 0;
      return next v_job;
    end loop;
  end loop;
end $$;

-- Claim as `claim_by_rank` does, and spend little time on jobs that were claimed before. While any transaction stays open, a
-- scan must skip the index entries of all jobs that were ready since it began. Once these are many, a link claims from the rank
-- below which it found nothing, and rescans lower ranks in a tenth of the time, or after ten seconds at the latest.
create or replace function retoma.claim_for_link(
  p_link retoma.worker_links, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_room int, p_suspect boolean)
returns setof retoma.claimed_job language plpgsql as $$
declare
  c_first constant bigint := -9223372036854775808;
  c_last constant bigint := 9223372036854775807;
  c_many constant bigint := 20000;
  v_began timestamptz := clock_timestamp();
  v_entries_before bigint := retoma.ready_entries_read();
  v_left int := p_room;
  v_job retoma.claimed_job;
  v_runs uuid[];
begin
  if p_link.rescan_at is null then
    return query select * from retoma.claim_by_rank(
      p_link.worker, p_now, p_queues, p_versions, p_after, p_room, p_suspect, p_link.call_number % 2 = 0, c_first, c_last);
    if retoma.ready_entries_read() > v_entries_before + c_many then
      p_link.rescan_at := v_began;
      perform retoma.schedule_rescan(p_link);
    end if;
    return;
  end if;
  if v_began >= p_link.rescan_at then
    p_link.claim_from_rank := (extract(epoch from p_now - interval '1 second') * 1000000)::bigint;
    for v_job in
      select * from retoma.claim_by_rank(p_link.worker, p_now, p_queues, p_versions, p_after, p_room, p_suspect, p_link.call_number % 2 = 0,
                                         c_first, p_link.claim_from_rank)
    loop
      v_left := v_left - (v_job.what in ('claimed', 'last'))::int;
      v_runs := v_runs || v_job.run;
      return next v_job;
    end loop;
    if v_left <= 0 then
      select min(j.rank) into p_link.claim_from_rank
        from retoma.jobs j where j.run = any (v_runs) and j.worker = p_link.worker and j.state = 'running';
    end if;
    p_link.rescan_at := case when retoma.ready_entries_read() > v_entries_before + c_many
                             then clock_timestamp() + least(9 * (clock_timestamp() - v_began), interval '10 seconds') end;
    perform retoma.schedule_rescan(p_link);
  end if;
  if v_left > 0 then
    return query select * from retoma.claim_by_rank(
      p_link.worker, p_now, p_queues, p_versions, p_after, v_left, p_suspect and v_left = p_room, p_link.call_number % 2 = 0,
      p_link.claim_from_rank, c_last);
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
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
stable language sql as $$
  -- A job that was claimed as 'last' stays so.
  select case when not j.stopping then 'claimed' when retoma.may_have_unwatched_external_work(j, j.started_at) then 'last' else 'over' end, j.run, j.step, j.item,
         j.revision, j.fence, j.attempt::int, j.failures::int, j.worker_deaths::int, j.spent_ms, j.version,
         j.tenant, p.run_input, p.item_value, p.results
    from retoma.running_jobs_of_worker(p_worker) j,
         retoma.job_parameters(j.run, j.step, j.item, j.version, j.input, retoma.max_revision()) p;
$$;

-- Searches the open runs one by one: no index contains a column that finishing a job writes, and the planner must not scan all
-- jobs instead.
create or replace function retoma.running_jobs_of_worker(p_worker int) returns setof retoma.jobs stable language sql as $$
  select j.*
    from (select r.id from retoma.runs r where r.ended_at is null and r.state <> 'pending' offset 0) r,
         lateral (select * from retoma.jobs j
                   where j.run = r.id and j.state = 'running' and j.worker = p_worker offset 0) j;
$$;
