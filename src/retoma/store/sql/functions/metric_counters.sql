-- Bring the metric counters up to date, by at most `p_limit` ends at a time. Every reader of the counters calls it, and so does
-- the maintenance loop of workers and servers; if another call is active, nothing is done. Each end is counted once: perhaps late, but never missed.
create or replace function retoma.update_metric_counters(p_limit int) returns void
language plpgsql as $$
declare
  v_cursor retoma.metric_cursor;
begin
  perform from retoma.metric_cursor for update skip locked;
  if found then
    perform retoma.count_delivery_ends(p_limit);
  end if;
  -- First up to the mark of the previous call, then, if nobody else is writing, what has come since.
  for round in 1..2 loop
    select * into v_cursor from retoma.metric_cursor for update skip locked;
    if not found or not retoma.have_writers_ended(v_cursor.writers) then
      return;
    end if;
    v_cursor.through := retoma.count_run_ends(v_cursor.through, v_cursor.next, p_limit);
    select number, writers into v_cursor.next, v_cursor.writers from retoma.mark_events(v_cursor.next);
    update retoma.metric_cursor set through = v_cursor.through, next = v_cursor.next, writers = v_cursor.writers;
  end loop;
end $$;

-- Count recorded ends of deliveries, and delete what was counted.
create or replace function retoma.count_delivery_ends(p_limit int) returns void language sql as $$
  with noted as (
    delete from retoma.delivery_ends
     where ctid = any (array(select ctid from retoma.delivery_ends limit p_limit))
    returning pipeline, state
  )
  insert into retoma.metric_counters as t (pipeline, what, outcome, count)
  select pipeline, 'delivery', state::text, count(*)
    from noted
   group by 1, 3
   order by 1, 3
      on conflict (pipeline, what, outcome, bucket) do update set count = t.count + excluded.count;
$$;

-- Count the ends of runs between two events. Returns the id of the last event that was counted.
create or replace function retoma.count_run_ends(p_after bigint, p_through bigint, p_limit int) returns bigint
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
    select v.pipeline, e.state, b.started_at - r.run_at as waited, p.review_time, e.at - b.started_at - coalesce(p.review_time, '0') as worked
      from ended e
      join retoma.runs r on r.id = e.run
      join retoma.versions v on v.id = r.version
      cross join lateral retoma.find_work_start(r.id, r.version) b
      cross join lateral retoma.review_wait_time(r.id, b.started_at, e.at) p
  ), counts as (
    select pipeline, 'run_end' as what, state as outcome, null::interval as took from facts
    union all
    select pipeline, 'run_wait', '', waited from facts where waited is not null
    union all
    select pipeline, 'run_duration', '', worked from facts where worked is not null
    union all
    select pipeline, 'run_review', '', review_time from facts where review_time is not null
  ), logged as (
    insert into retoma.metric_counters as t (pipeline, what, outcome, bucket, count, seconds)
    select pipeline, what, outcome, retoma.histogram_bucket(took), count(*), coalesce(sum(greatest(extract(epoch from took), 0)), 0)
      from counts
     group by 1, 2, 3, 4
     order by 1, 2, 3, 4
        on conflict (pipeline, what, outcome, bucket)
        do update set count = t.count + excluded.count, seconds = t.seconds + excluded.seconds
  )
  select case when count(*) < p_limit then p_through else max(id) end into v_last from ended;
  return v_last;
end $$;

-- How long reviews were open between two times. Overlapping reviews count once. Null if there was none.
create or replace function retoma.review_wait_time(p_run uuid, p_from timestamptz, p_to timestamptz) returns table (review_time interval)
stable language sql as $$
  select sum(upper(span) - lower(span))
    from (select unnest(range_agg(tstzrange(v.opened_at, least(coalesce(v.decided_at, v.ended_at, p_to), p_to)))
                 * tstzmultirange(tstzrange(p_from, p_to))) as span
            from retoma.reviews v
           where v.run = p_run and v.opened_at <= p_to and p_from <= p_to) open;
$$;

-- The upper bound of the bucket that a duration falls into.
create or replace function retoma.histogram_bucket(p_took interval) returns double precision immutable language sql as $$
  select coalesce(
    (select min(b) from unnest('{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600}'::double precision[]) as b
      where b >= extract(epoch from p_took)), 'infinity');
$$;

-- Whether the work of runs of this version starts with steps that need a pool, rather than with any step.
create or replace function retoma.uses_pools(p_version int) returns boolean stable language sql as $$
  select exists (select from retoma.steps s where s.version = p_version and s.pool is not null);
$$;

-- When the work of a run started: its first attempt, or where steps need pools, the first that got its slots. Simple enough for
-- the planner to inline.
create or replace function retoma.find_work_start(p_run uuid, p_version int) returns table (started_at timestamptz)
stable language sql as $$
  -- A parked job starts again when its external work has ended: its last start is not its first.
  select min(least(j.started_at - j.spent_ms * interval '1 ms', o.started_at, o.parked_at, f.begun_at))
    from retoma.jobs j
    join retoma.steps s on s.version = j.version and s.step = j.step
    left join retoma.external_work o on o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
    left join retoma.effects f on f.run = j.run and f.step = j.step and f.item = j.item and f.revision = j.revision
   where j.run = p_run and j.started_at is not null and (s.pool is not null or not retoma.uses_pools(p_version));
$$;
