-- Whether a job waits for a pool, and these queues, versions, suspects and ranks allow it (null: any queue or version). The planner
-- inlines it.
create or replace function retoma.is_claimable_from_pool(
  p_job retoma.jobs, p_pool text, p_queues text[], p_versions int[], p_suspect boolean, p_from bigint, p_before bigint)
returns boolean immutable language sql as $$
  select p_job.pool = p_pool and p_job.rank >= p_from and p_job.rank < p_before and retoma.is_claimable(p_job) and p_job.pool is not null
     and (p_queues is null or p_job.queue = any (p_queues)) and (p_versions is null or p_job.version = any (p_versions))
     and (p_job.worker_deaths = 0 or p_suspect);
$$;

-- Tenants with jobs for a pool that these queues, versions and suspects allow (null: any), each once, in turn after the tenant
-- that was served last.
create or replace function retoma.tenants_for_pool(
  p_pool text, p_queues text[], p_versions int[], p_suspect boolean, p_after int, p_limit int,
  p_from bigint default -9223372036854775808, p_before bigint default 9223372036854775807) returns setof int
stable language sql as $$
  with recursive found (tenant) as (
    select 0
    union all
    select (select j.tenant from retoma.jobs j
             where j.tenant > found.tenant
               and retoma.is_claimable_from_pool(j, p_pool, p_queues, p_versions, p_suspect, p_from, p_before)
             order by j.tenant limit 1)
      from found where found.tenant is not null
  )
  select tenant from found where tenant > 0 order by tenant <= p_after, tenant limit p_limit;
$$;

-- Whether a running worker serves this queue, and may claim its jobs.
create or replace function retoma.queue_has_worker(p_queue text) returns boolean stable language sql as $$
  select exists (select from retoma.workers w
                  where w.ended_at is null and w.drain_requested_at is null and p_queue = any (w.queues))
     and not retoma.is_paused(p_queue);
$$;

create or replace function retoma.holds_slots(p_job retoma.jobs) returns boolean stable language sql as $$
  select exists (select from retoma.holdings h
                  where h.run = p_job.run and h.step = p_job.step and h.item = p_job.item and h.revision = p_job.revision);
$$;

-- How many more slots this tenant may take, besides those of the jobs that are about to start.
create or replace function retoma.tenant_slots_left(p_pool retoma.pools, p_tenant int, p_jobs tid[]) returns int stable language sql as $$
  select case when p_pool.per_tenant is null then 1000000000 else p_pool.per_tenant - (
    select coalesce(sum(t.slots), 0)::int from (
      select h.slots from retoma.holdings h
        join retoma.jobs j on j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision
       where h.pool = p_pool.name and j.tenant = p_tenant
      union all
      select s.slots from retoma.jobs j
        join retoma.steps s on s.version = j.version and s.step = j.step
       where j.ctid = any (p_jobs) and j.tenant = p_tenant and not retoma.holds_slots(j)) t) end;
$$;

-- Claim jobs that need a pool: tenants take turns, and the lowest rank of each goes first, except for the share of its waiting
-- runs. Smaller jobs may overtake one that does not fit for 60 seconds; after that, free slots are reserved for it. A row 'later'
-- says when the rate lets the next job start.
create or replace function retoma.claim_pooled(
  p_worker int, p_now timestamptz, p_queues text[], p_versions int[], p_limit int, p_suspect boolean,
  p_call_number bigint, p_from bigint, p_before bigint)
returns setof retoma.claimed_job language plpgsql as $$
declare
  v_left int := p_limit;
  v_suspect boolean := p_suspect;
  v_pool retoma.pools;
  v_elapsed double precision;
  v_share record;
  v_later retoma.claimed_job;
begin
  for v_pool in
    select p.* from retoma.pools p
     where exists (select from retoma.jobs j
                    where j.pool = p.name and retoma.is_claimable(j) and j.pool is not null
                      and j.rank >= p_from and j.rank < p_before)
     order by p.name for update
  loop
    exit when v_left <= 0;
    continue when v_pool.paused_until > p_now;
    continue when v_pool.open_until > p_now;
    if v_pool.rate is not null then
      -- An error here would fail every claim, whatever its pool: no number may become too small or too large.
      v_pool.rate := greatest(v_pool.rate, 0.000001);
      v_elapsed := greatest(0, extract(epoch from p_now - v_pool.tokens_at)); -- a clock may be set back
      v_pool.tokens := least(v_pool.burst, greatest(0, v_pool.tokens) + v_pool.rate * v_elapsed);
      v_pool.tokens_at := p_now;
    end if;
    v_share := retoma.allocate_slots(
      p_now, v_pool, p_queues, p_versions, case when retoma.is_tripped(v_pool) then 1 else v_left end, v_suspect,
      p_call_number, p_from, p_before);
    v_pool := v_share.o_pool;
    if cardinality(v_share.o_jobs) > 0 then
      v_left := v_left - cardinality(v_share.o_jobs);
      v_suspect := v_suspect and not v_share.o_suspect;
      if retoma.is_tripped(v_pool) then
        v_pool.open_until := p_now + retoma.probe_timeout();
        v_pool.probed_at := p_now;
      end if;
      -- They start not before the slots were free: this call may have waited for them.
      return query select * from retoma.claim_jobs(p_worker, greatest(p_now, retoma.now()), v_share.o_jobs);
    end if;
    if v_pool.rate is not null and v_pool.tokens < 1 then
      v_later.what := 'later';
      v_later.next_claim_ms := ceil((1 - v_pool.tokens) / v_pool.rate * 1000);
      return next v_later;
    end if;
    -- The next claim reads every version of this row that vacuum cannot remove: create none without need.
    update retoma.pools p
       set (open_until, probed_at, tokens, tokens_at, last_tenant, reserved_job, reserved_at, reserved_seen_at)
         = (v_pool.open_until, v_pool.probed_at, v_pool.tokens, v_pool.tokens_at, v_pool.last_tenant,
            v_pool.reserved_job, v_pool.reserved_at, v_pool.reserved_seen_at)
     where p.name = v_pool.name
       and (p.open_until, p.probed_at, p.tokens, p.tokens_at, p.last_tenant, p.reserved_job, p.reserved_at, p.reserved_seen_at)
           is distinct from
           (v_pool.open_until, v_pool.probed_at, v_pool.tokens, v_pool.tokens_at, v_pool.last_tenant,
            v_pool.reserved_job, v_pool.reserved_at, v_pool.reserved_seen_at);
  end loop;
end $$;

-- Choose the jobs of one pool that may start, in order. They are locked, but not changed yet.
create or replace function retoma.allocate_slots(
  p_now timestamptz, p_pool retoma.pools, p_queues text[], p_versions int[], p_limit int, p_suspect boolean,
  p_call_number bigint, p_from bigint, p_before bigint,
  out o_pool retoma.pools, out o_jobs tid[], out o_suspect boolean)
language plpgsql as $$
declare
  v_free int := p_pool.capacity - coalesce((select sum(h.slots) from retoma.holdings h where h.pool = p_pool.name), 0);
  v_left int := least(p_limit, case when p_pool.rate is null then p_limit else floor(p_pool.tokens)::int end);
  v_reserved retoma.job_key := p_pool.reserved_job;
  v_tenants int[];
  v_tenant int;
  v_jobs int;                              -- of this turn of the tenant
  v_for_waiting int;                       -- of those, for a waiting run
  v_waiting bigint;
  v_job record;
  v_got int;
  v_tenant_slots int;                      -- that the tenant may still take
  v_passed boolean := false;               -- a job that does not fit was overtaken: consider only those that fit
  v_fitting boolean;
  v_is_rest boolean := false;
begin
  o_pool := p_pool;
  o_jobs := '{}';
  o_suspect := false;
  -- Jobs that kept their slots, because they may have submitted external work, need no free ones.
  for v_job in
    select j.ctid as job, j.tenant, j.worker_deaths > 0 as suspect
      from retoma.holdings h
      join retoma.jobs j on j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision
     where h.pool = p_pool.name and j.pool = p_pool.name and retoma.is_claimable(j)
       and j.rank >= p_from and j.rank < p_before
       and j.queue = any (p_queues) and j.version = any (p_versions)
       and (j.worker_deaths = 0 or p_suspect)
     order by j.rank, j.run, j.position for update of j skip locked
  loop
    exit when v_left <= 0;
    continue when v_job.suspect and o_suspect;
    o_pool := retoma.pool_after_claim(o_pool, v_job.tenant);
    o_jobs := o_jobs || v_job.job;
    o_suspect := o_suspect or v_job.suspect;
    v_left := v_left - 1;
  end loop;
  if v_reserved.run is not null then
    select j.ctid as job, s.slots, j.tenant, j.worker_deaths > 0 as suspect,
           j.queue = any (p_queues) and j.version = any (p_versions) and (j.worker_deaths = 0 or p_suspect) as mine,
           p_pool.reserved_at <= p_now - interval '60 seconds' as kept_for
      into v_job
      from retoma.jobs j
      join retoma.steps s on s.version = j.version and s.step = j.step
     where j.run = v_reserved.run and j.step = v_reserved.step and j.item = v_reserved.item and j.revision = v_reserved.revision
       and retoma.is_claimable(j) and j.pool = p_pool.name
       and retoma.queue_has_worker(j.queue)
       for update of j skip locked;
    if found and v_job.mine then
      o_pool.reserved_seen_at := p_now;
    end if;
    -- A job that nobody can claim any more, whose tenant has used its share, or that a reduced pool can never hold must not
    -- block others.
    if not found or v_job.slots > least(p_pool.capacity, retoma.tenant_slots_left(p_pool, v_job.tenant, '{}'))
       or o_pool.reserved_seen_at < p_now - interval '30 seconds' then
      o_pool := retoma.without_reservation(o_pool);
    elsif v_job.slots > v_free then
      if v_job.kept_for then
        return;
      end if;
      v_passed := true;
    elsif v_job.mine and v_left > 0 and not (v_job.suspect and o_suspect) then
      o_pool := retoma.without_reservation(retoma.pool_after_claim(o_pool, v_job.tenant));
      o_jobs := o_jobs || v_job.job;
      o_suspect := o_suspect or v_job.suspect;
      v_free := v_free - v_job.slots;
      v_left := v_left - 1;
    elsif v_job.kept_for then
      v_free := v_free - v_job.slots;
    end if;
  end if;

  loop
    exit when v_left <= 0 or v_free <= 0;
    v_got := 0;
    v_fitting := v_passed;
    v_tenants := array(select retoma.tenants_for_pool(
      p_pool.name, p_queues, p_versions, p_suspect and not o_suspect, o_pool.last_tenant, 1000, p_from, p_before));
    exit when v_tenants = '{}';
    foreach v_tenant in array v_tenants loop
      exit when v_left <= 0 or v_free <= 0;
      v_tenant_slots := retoma.tenant_slots_left(p_pool, v_tenant, o_jobs);
      v_jobs := greatest(1, least(v_left, v_free) / cardinality(v_tenants));
      v_for_waiting := case when v_is_rest then 0 else retoma.jobs_for_waiting_runs(v_jobs, p_call_number) end;
      v_waiting := case when v_for_waiting > 0 then retoma.rank_of_waiting_run(
        p_pool.name, v_tenant, p_queues, p_versions, p_suspect and not o_suspect, p_call_number, p_from, p_before) end;
      for v_job in
        select c.*
          from retoma.ranges_to_claim(v_jobs, v_for_waiting, v_waiting, p_from, p_before) r,
               lateral (
                 select j.ctid as job, j.run, j.step, j.item, j.revision, s.slots, j.worker_deaths > 0 as suspect
                   from retoma.jobs j
                   join retoma.steps s on s.version = j.version and s.step = j.step
                  where j.tenant = v_tenant
                    and retoma.is_claimable_from_pool(
                          j, p_pool.name, p_queues, p_versions, p_suspect and not o_suspect, r.first, r.before)
                    and (not v_fitting or s.slots <= v_free) and s.slots <= v_tenant_slots
                    and j.ctid <> all (o_jobs)
                  order by j.rank, j.run, j.position
                  limit r.jobs for update of j skip locked) c
      loop
        exit when v_left <= 0 or v_free <= 0;
        continue when v_job.suspect and o_suspect or v_job.slots > v_tenant_slots;
        if v_job.slots > v_free then
          v_passed := true;
          if o_pool.reserved_job is null and v_job.slots <= p_pool.capacity then
            o_pool.reserved_job := (v_job.run, v_job.step, v_job.item, v_job.revision);
            o_pool.reserved_at := p_now;
            o_pool.reserved_seen_at := p_now;
          end if;
          continue;
        end if;
        o_pool := retoma.pool_after_claim(o_pool, v_tenant);
        o_jobs := o_jobs || v_job.job;
        o_suspect := o_suspect or v_job.suspect;
        v_free := v_free - v_job.slots;
        v_tenant_slots := v_tenant_slots - v_job.slots;
        v_left := v_left - 1;
        v_got := v_got + 1;
      end loop;
    end loop;
    -- Distribute the rest; jobs for a waiting run may not fit, or be locked.
    exit when v_got = 0 and v_fitting = v_passed and v_is_rest;
    v_is_rest := true;
  end loop;
end $$;

create or replace function retoma.pool_after_claim(p_pool retoma.pools, p_tenant int) returns retoma.pools language plpgsql immutable as $$
begin
  p_pool.last_tenant := p_tenant;
  if p_pool.rate is not null then
    p_pool.tokens := p_pool.tokens - 1;
  end if;
  return p_pool;
end $$;

create or replace function retoma.without_reservation(p_pool retoma.pools) returns retoma.pools language plpgsql immutable as $$
begin
  p_pool.reserved_job := null;
  p_pool.reserved_at := null;
  p_pool.reserved_seen_at := null;
  return p_pool;
end $$;

-- A transaction that writes to a pool and may then claim locks all pools, in one order.
create or replace function retoma.lock_pools() returns void language sql as $$
  select from retoma.pools order by name for update;
$$;

-- Release the slots of jobs that have ended or will be retried.
create or replace function retoma.release_slots(p_jobs retoma.job_key[]) returns void language sql as $$
  delete from retoma.holdings where ctid = any (array(
    select h.ctid
      from unnest(p_jobs) j,
           -- Job by job, even if this was planned while nothing was held.
           lateral (select o.ctid from retoma.holdings o
                     where o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision offset 0) h));
$$;

-- Start nothing in the pools of these jobs until the time that their providers named.
create or replace function retoma.pause_pools(p_now timestamptz, p_run uuid[], p_step text[], p_delay interval[], p_code text[])
returns void language plpgsql as $$
begin
  perform retoma.lock_pools();
  perform retoma.pause_pool(p_now, w.pool, w.delay)
     from (select s.pool, max(w.delay) as delay
             from unnest(p_run, p_step, p_delay, p_code) as w (run, step, delay, code)
             join retoma.runs r on r.id = w.run
             join retoma.steps s on s.version = r.version and s.step = w.step
            where w.code = 'RATE_LIMITED'
            group by 1) w;
end $$;

create or replace function retoma.pause_pool(p_now timestamptz, p_pool text, p_delay interval) returns void language sql as $$
  update retoma.pools set paused_until = greatest(paused_until, p_now + p_delay) where name = p_pool;
$$;
