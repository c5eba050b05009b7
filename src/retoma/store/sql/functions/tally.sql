-- Bring the tallies up to date, by at most `p_limit` ends at a time. Whoever looks at them calls it; if another is at it,
-- nothing is done. An end is counted once: it may be counted late, but is never missed.
create or replace function retoma.tally(p_limit int) returns void
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_tallied retoma.tallied;
begin
  perform from retoma.tallied for update skip locked;
  if found then
    perform retoma.tally_deliveries(p_limit);
  end if;
  -- First what was seen by the look before, then, if nobody else writes just now, what has come since.
  for round in 1..2 loop
    select * into v_tallied from retoma.tallied for update skip locked;
    if not found or not retoma.is_settled(v_tallied.writers) then
      return;
    end if;
    v_tallied.through := retoma.tally_ends(v_tallied.through, v_tallied.next, p_limit);
    select number, writers into v_tallied.next, v_tallied.writers from retoma.mark_events(v_tallied.next);
    update retoma.tallied set through = v_tallied.through, next = v_tallied.next, writers = v_tallied.writers;
  end loop;
end $$;

-- Count the deliveries whose ends were noted. What was counted is no longer there to be counted again.
create or replace function retoma.tally_deliveries(p_limit int) returns void language sql as $$
  with noted as (
    delete from retoma.delivery_ends
     where ctid = any (array(select ctid from retoma.delivery_ends limit p_limit))
    returning pipeline, state
  )
  insert into retoma.tallies as t (pipeline, what, outcome, times)
  select pipeline, 'delivery', state::text, count(*)
    from noted
   group by 1, 3
   order by 1, 3
      on conflict (pipeline, what, outcome, under) do update set times = t.times + excluded.times;
$$;

-- Count the ends of runs between two events. Gives through which.
create or replace function retoma.tally_ends(p_after bigint, p_through bigint, p_limit int) returns bigint
language plpgsql as $$
declare
  v_last bigint;
begin
  with ended as materialized (
    select e.id, e.run, e.at, e.data ->> 'state' as state
      from retoma.events e
     where e.kind = 'end' and e.id > p_after and e.id <= p_through
     order by e.id
     limit p_limit
  ), facts as materialized (
    select v.pipeline, e.state, b.began_at - r.run_at as waited, p.asked, e.at - b.began_at - coalesce(p.asked, '0') as worked
      from ended e
      join retoma.runs r on r.id = e.run
      join retoma.versions v on v.id = r.version
      cross join lateral retoma.beginning_of(r.id, r.version) b
      cross join lateral retoma.asked_people(r.id, b.began_at, e.at) p
  ), counts as (
    select pipeline, 'ended' as what, state as outcome, null::interval as took from facts
    union all
    select pipeline, 'waited', '', waited from facts where waited is not null
    union all
    select pipeline, 'worked', '', worked from facts where worked is not null
    union all
    select pipeline, 'asked', '', asked from facts where asked is not null
  ), told as (
    insert into retoma.tallies as t (pipeline, what, outcome, under, times, seconds)
    select pipeline, what, outcome, retoma.bucket(took), count(*), coalesce(sum(greatest(extract(epoch from took), 0)), 0)
      from counts
     group by 1, 2, 3, 4
     order by 1, 2, 3, 4
        on conflict (pipeline, what, outcome, under)
        do update set times = t.times + excluded.times, seconds = t.seconds + excluded.seconds
  )
  select case when count(*) < p_limit then p_through else max(id) end into v_last from ended;
  return v_last;
end $$;

-- For how long people were asked something between two times. Reviews that were open at once count once. Null if none was.
create or replace function retoma.asked_people(p_run uuid, p_from timestamptz, p_to timestamptz) returns table (asked interval)
stable language sql as $$
  select sum(upper(span) - lower(span))
    from (select unnest(range_agg(tstzrange(v.opened_at, least(coalesce(v.decided_at, v.ended_at, p_to), p_to)))
                 * tstzmultirange(tstzrange(p_from, p_to))) as span
            from retoma.reviews v
           where v.run = p_run and v.opened_at <= p_to and p_from <= p_to) open;
$$;

-- The upper bound of the bucket that a duration falls into.
create or replace function retoma.bucket(p_took interval) returns double precision immutable language sql as $$
  select coalesce(
    (select min(b) from unnest('{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600}'::double precision[]) as b
      where b >= extract(epoch from p_took)), 'infinity');
$$;

-- Whether work on runs of this version begins with steps that need a pool, and not with any step.
create or replace function retoma.has_pools(p_version int) returns boolean stable language sql as $$
  select exists (select from retoma.steps s where s.version = p_version and s.pool is not null);
$$;

-- When a run's work began: its first attempt, or where steps need pools, the first that got its slots. Simple enough for
-- the planner to inline.
create or replace function retoma.beginning_of(p_run uuid, p_version int) returns table (began_at timestamptz)
stable language sql as $$
  -- A job that was parked starts again when its outside work has ended: its last start is not its first.
  select min(least(j.started_at - j.spent_ms * interval '1 ms', o.started_at, o.parked_at, f.begun_at))
    from retoma.jobs j
    join retoma.steps s on s.version = j.version and s.step = j.step
    left join retoma.outside o on o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
    left join retoma.effects f on f.run = j.run and f.step = j.step and f.item = j.item and f.revision = j.revision
   where j.run = p_run and j.started_at is not null and (s.pool is not null or not retoma.has_pools(p_version));
$$;

create or replace function retoma.began_at(p_run retoma.runs) returns timestamptz stable language sql as $$
  select began_at from retoma.beginning_of(p_run.id, p_run.version);
$$;
