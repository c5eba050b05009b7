-- Tenants with ready work of these versions and ranks in a queue, each once, in turn after `p_after`. One index probe a tenant.
create or replace function retoma.tenants_in_turn(
  p_queue text, p_versions int[], p_after int, p_limit int, p_from bigint, p_before bigint) returns setof int
stable language sql as $$
  with recursive later as (
    (select j.tenant from retoma.jobs j
      where j.queue = p_queue and j.tenant > p_after and j.version = any (p_versions)
        and j.rank >= p_from and j.rank < p_before
        and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.deaths = 0 and j.pool is null
      order by j.tenant limit 1)
    union all
    select (select j.tenant from retoma.jobs j
             where j.queue = p_queue and j.tenant > later.tenant and j.version = any (p_versions)
               and j.rank >= p_from and j.rank < p_before
               and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.deaths = 0 and j.pool is null
             order by j.tenant limit 1)
      from later where later.tenant is not null
  ), earlier as (
    (select j.tenant from retoma.jobs j
      where j.queue = p_queue and j.tenant <= p_after and j.version = any (p_versions)
        and j.rank >= p_from and j.rank < p_before
        and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.deaths = 0 and j.pool is null
      order by j.tenant limit 1)
    union all
    select (select j.tenant from retoma.jobs j
             where j.queue = p_queue and j.tenant > earlier.tenant and j.tenant <= p_after and j.version = any (p_versions)
               and j.rank >= p_from and j.rank < p_before
               and j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.deaths = 0 and j.pool is null
             order by j.tenant limit 1)
      from earlier where earlier.tenant is not null
  )
  select tenant from (
    (select tenant, 1 as half from later where tenant is not null limit p_limit)
    union all
    (select tenant, 2 from earlier where tenant is not null limit p_limit)
  ) as turns order by half, tenant limit p_limit;
$$;

-- Claim up to `p_room` ready jobs of these ranks and of versions that this worker serves: tenants in turn, and for each the lowest rank.
-- At most one of them is a suspect, and none unless `p_suspect`. What may go on outside in a run that stops is claimed as
-- 'last': it may only be found, to be ended there.
create or replace function retoma.claim(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_room int, p_suspect boolean,
  p_from bigint, p_before bigint)
returns setof retoma.claimed language plpgsql as $$
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
          where c.queue = any (p_queues) and c.worker is null and c.waiting_on = 0 and c.ready_at is null and c.deaths > 0 and c.pool is null
            and c.version = any (p_versions)
          order by c.rank limit 1 for update skip locked))
      returning j.*)
    select case when t.ending then 'last' else 'claimed' end, t.run, t.step, t.item, t.revision, t.fence, t.attempt::int, t.failures::int, t.deaths::int, t.spent_ms, t.version,
           t.tenant, p.run_input, p.item_value, p.results
      from taken t, retoma.parameters_of(t.run, t.step, t.item, t.version, t.input, retoma.latest()) p;
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
                       and c.worker is null and c.waiting_on = 0 and c.ready_at is null and c.deaths = 0 and c.pool is null
                       and c.rank >= p_from and c.rank < p_before and c.version = any (p_versions)
                     order by c.rank
                     limit greatest(1, v_left / cardinality(v_tenants))
                       for update skip locked) r))
        returning j.*)
      select case when t.ending then 'last' else 'claimed' end, t.run, t.step, t.item, t.revision, t.fence, t.attempt::int, t.failures::int, t.deaths::int, t.spent_ms, t.version,
             t.tenant, p.run_input, p.item_value, p.results
        from taken t, retoma.parameters_of(t.run, t.step, t.item, t.version, t.input, retoma.latest()) p;
      get diagnostics v_got = row_count;
      v_left := v_left - v_got;
      -- With one tenant one round takes all there is; with several, another shares out what is left.
      exit when v_got = 0 or cardinality(v_tenants) = 1;
    end loop;
  end loop;
end $$;

-- Claim up to `p_room` jobs of these ranks, of those that need a pool and of those that do not; `p_pooled_first` goes to and fro, so that
-- neither starves the other. Pools are locked last of all.
create or replace function retoma.take(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_room int, p_suspect boolean,
  p_pooled_first boolean, p_from bigint, p_before bigint)
returns setof retoma.claimed language plpgsql as $$
declare
  v_left int := p_room;
  v_suspect boolean := p_suspect;
  v_job retoma.claimed;
begin
  if not exists (select from retoma.jobs j
                  where j.worker is null and j.waiting_on = 0 and j.ready_at is null and j.pool is not null
                    and j.rank >= p_from and j.rank < p_before) then
    return query select * from retoma.claim(p_worker, p_now, p_queues, p_versions, p_after, p_room, p_suspect, p_from, p_before);
    return;
  end if;
  for v_round in 1 .. 2 loop
    for v_job in
      select * from retoma.claim(p_worker, p_now, p_queues, p_versions, p_after, v_left, v_suspect, p_from, p_before)
       where (v_round = 1) <> p_pooled_first
      union all
      select * from retoma.claim_pooled(p_worker, p_now, p_queues, p_versions, v_left, v_suspect, p_from, p_before)
       where (v_round = 1) = p_pooled_first
    loop
      v_left := v_left - (v_job.what in ('claimed', 'last'))::int;
      v_suspect := v_suspect and coalesce(v_job.deaths, 0) = 0;
      return next v_job;
    end loop;
  end loop;
end $$;

-- Claim as `take` does, and spend little time on jobs that were claimed before. While somebody keeps a transaction open, index
-- entries of all jobs that were ever ready since then must be passed over. Once these are many, a lane claims from the rank
-- below which it found nothing, and looks at lower ranks in a tenth of the time, or as soon as ten seconds have passed.
create or replace function retoma.take_in_time(
  p_lane retoma.lanes, p_now timestamptz, p_queues text[], p_versions int[], p_after int, p_room int, p_suspect boolean)
returns setof retoma.claimed language plpgsql as $$
declare
  c_first constant bigint := -9223372036854775808;
  c_last constant bigint := 9223372036854775807;
  c_many constant bigint := 20000;
  v_began timestamptz := clock_timestamp();
  v_passed bigint := retoma.ready_entries_read();
  v_left int := p_room;
  v_job retoma.claimed;
  v_runs uuid[];
begin
  if p_lane.look_back_at is null then
    return query select * from retoma.take(
      p_lane.worker, p_now, p_queues, p_versions, p_after, p_room, p_suspect, p_lane.call % 2 = 0, c_first, c_last);
    if retoma.ready_entries_read() > v_passed + c_many then
      p_lane.look_back_at := v_began;
      perform retoma.set_look_back(p_lane);
    end if;
    return;
  end if;
  if v_began >= p_lane.look_back_at then
    p_lane.claims_from := (extract(epoch from p_now - interval '1 second') * 1000000)::bigint;
    for v_job in
      select * from retoma.take(p_lane.worker, p_now, p_queues, p_versions, p_after, p_room, p_suspect, p_lane.call % 2 = 0,
                                c_first, p_lane.claims_from)
    loop
      v_left := v_left - (v_job.what in ('claimed', 'last'))::int;
      v_runs := v_runs || v_job.run;
      return next v_job;
    end loop;
    if v_left <= 0 then
      select min(j.rank) into p_lane.claims_from
        from retoma.jobs j where j.run = any (v_runs) and j.worker = p_lane.worker and j.state = 'running';
    end if;
    p_lane.look_back_at := case when retoma.ready_entries_read() > v_passed + c_many
                                then clock_timestamp() + least(9 * (clock_timestamp() - v_began), interval '10 seconds') end;
    perform retoma.set_look_back(p_lane);
  end if;
  if v_left > 0 then
    return query select * from retoma.take(
      p_lane.worker, p_now, p_queues, p_versions, p_after, v_left, p_suspect and v_left = p_room, p_lane.call % 2 = 0,
      p_lane.claims_from, c_last);
  end if;
end $$;

-- How many entries of jobs that may be ready this transaction has read, those of jobs that are not ready any more included.
create or replace function retoma.ready_entries_read() returns bigint language sql as $$
  select pg_stat_get_xact_tuples_returned('retoma.jobs_ready'::regclass)
       + pg_stat_get_xact_tuples_returned('retoma.jobs_for_pool'::regclass);
$$;

create or replace function retoma.set_look_back(p_lane retoma.lanes) returns void language sql as $$
  update retoma.lanes set look_back_at = p_lane.look_back_at, claims_from = p_lane.claims_from
   where worker = p_lane.worker and lane = p_lane.lane and part = p_lane.part;
$$;

-- The jobs that a worker holds, as claimed: what it is told again after a lost answer, and what it leaves at its death.
create or replace function retoma.held_by(p_worker int) returns setof retoma.claimed
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
stable language sql as $$
  -- What was last when it was claimed still is.
  select case when not j.ending then 'claimed' when retoma.may_go_on_outside(j, j.started_at) then 'last' else 'over' end, j.run, j.step, j.item,
         j.revision, j.fence, j.attempt::int, j.failures::int, j.deaths::int, j.spent_ms, j.version,
         j.tenant, p.run_input, p.item_value, p.results
    from retoma.jobs_held(p_worker) j,
         retoma.parameters_of(j.run, j.step, j.item, j.version, j.input, retoma.latest()) p;
$$;

-- They are looked for in the runs that are under way, one by one: no index holds a column that finishing writes, and
-- the planner must not go through all jobs instead.
create or replace function retoma.jobs_held(p_worker int) returns setof retoma.jobs stable language sql as $$
  select j.*
    from (select r.id from retoma.runs r where r.ended_at is null and r.state <> 'pending' offset 0) r,
         lateral (select * from retoma.jobs j
                   where j.run = r.id and j.state = 'running' and j.worker = p_worker offset 0) j;
$$;
