-- What workers have done since `p_since`, by step: jobs that ended, how long these waited and took, and the seconds for which
-- attempts occupied a worker. Reads events from the newest backwards, at most `p_limit` of them; `since` is when the oldest of
-- them was written if there are more. Reviews and internal steps are left out: no worker processes them. Rows without a step are
-- those of whole queues.
create or replace function retoma.job_metrics(p_since timestamptz, p_limit int)
returns table (pipeline text, step text, queue text, since timestamptz, ended int, busy_seconds float,
               queue_times float[], processing_times float[])
stable language plpgsql as $$
declare
  -- Ids are assigned in almost the order of time: a statement that waited for a lock writes events that are older than those
  -- before them.
  c_stragglers constant int := 20;
  v_after bigint;
begin
  select e.id into v_after
    from (select n.id, n.at from retoma.events n order by n.id desc limit p_limit) e
   where e.at < p_since
   order by e.id desc
  offset c_stragglers limit 1;

  return query
  with recent as materialized (
    select e.run, e.step, e.item, e.revision, e.worker, e.kind, e.at, e.started_at
      from retoma.events e
     where e.id > coalesce(v_after, 0)
     order by e.id desc
     limit p_limit
  ), attempts as materialized (
    select j.version, j.run, j.step, j.item, j.revision, j.created_at, r.kind <> 'retry' as has_ended, j.ended_at,
           least(j.started_at - j.spent_ms * interval '1 ms', o.started_at) as started_at,
           case when r.kind = 'retry' then r.at - r.started_at
                else r.at - j.started_at + coalesce(o.parked_at - o.started_at, '0') end as busy
      from recent r,
           lateral (select * from retoma.jobs j
                     where j.run = r.run and j.step = r.step and j.item = r.item and j.revision = r.revision offset 0) j
      left join lateral (select x.started_at, x.parked_at from retoma.external_work x
                          where x.run = j.run and x.step = j.step and x.item = j.item and x.revision = j.revision offset 0) o on true
     where r.kind in ('result', 'failure', 'retry') and r.worker > 0 and r.at >= p_since
  ), types as materialized (
    select t.version, t.step, v.pipeline, s.queue, s.created_on
      from (select distinct a.version, a.step from attempts a) t,
           lateral (select * from retoma.steps s where s.version = t.version and s.step = t.step offset 0) s,
           lateral (select * from retoma.versions v where v.id = t.version offset 0) v
     where s.review is null and not s.internal
  ), dependencies as materialized (
    -- Items of a step share the dependencies that are not items, so these are read once for all of them.
    select d.run, d.step, d.revision, max(n.ended_at) as ended_at
      from (select distinct a.run, a.version, a.step, a.revision
              from attempts a
              join types t on t.version = a.version and t.step = a.step and t.created_on <> 'dependency'
             where a.has_ended) d,
           lateral (select g.from_step from retoma.edges g
                     where g.version = d.version and g.to_step = d.step and not g.same_item offset 0) g,
           lateral (select j.ended_at from retoma.jobs j
                     where j.run = d.run and j.step = g.from_step and j.revision <= d.revision offset 0) n
     group by 1, 2, 3
  ), jobs as materialized (
    select t.pipeline, a.step, t.queue, a.has_ended, extract(epoch from a.busy)::float as busy,
           extract(epoch from a.ended_at - a.started_at)::float as processing_time,
           extract(epoch from a.started_at - greatest(a.created_at, d.ended_at, i.ended_at, r.run_at))::float as queue_time
      from attempts a
      join types t on t.version = a.version and t.step = a.step
      left join dependencies d on d.run = a.run and d.step = a.step and d.revision = a.revision
      left join lateral (select max(j.ended_at) as ended_at
                           from (select e.from_step from retoma.edges e
                                  where e.version = a.version and e.to_step = a.step and e.same_item offset 0) g,
                                lateral (select n.ended_at from retoma.jobs n
                                          where n.run = a.run and n.step = g.from_step and n.item = a.item
                                            and n.revision <= a.revision offset 0) j) i
        on a.has_ended and t.created_on = 'expansion'
      left join lateral (select x.run_at from retoma.runs x where x.id = a.run offset 0) r on a.has_ended and t.created_on = 'start'
  )
  select j.pipeline, j.step, min(j.queue), (select case when count(*) < p_limit then p_since else min(n.at) end from recent n),
         (count(*) filter (where j.has_ended))::int, sum(greatest(j.busy, 0)),
         retoma.summarise_times(array_agg(greatest(j.queue_time, 0)) filter (where j.has_ended)),
         retoma.summarise_times(array_agg(greatest(j.processing_time, 0)) filter (where j.has_ended))
    from jobs j
   group by grouping sets ((j.pipeline, j.step), (j.queue));
end $$;

-- The mean, the median and the 95th percentile, or null if there are no times.
create or replace function retoma.summarise_times(p_times float[]) returns float[] immutable language sql as $$
  select array[avg(t)] || percentile_cont(array[0.5, 0.95]) within group (order by t)
    from unnest(p_times) as t
  having count(*) > 0;
$$;
