-- name: queue_figures
-- Jobs that are not final, by queue.
select queue, state, jobs
  from retoma.jobs_by_queue(:most_runs);

-- name: queue_figures_of_tenant
-- The same of one tenant, with how long the job that comes next has been ready.
select queue, state, jobs, age
  from retoma.jobs_of_tenant_by_queue(:tenant, :most_runs);

-- name: all_queues
-- Every queue that a step is on or a worker serves, but for the one of people, with the workers that live and what they can run at once.
select queue, count(w.id)::int as workers, coalesce(sum(w.concurrency), 0)::int as room
  from (select queue from retoma.steps where queue <> '' union select unnest(queues) from retoma.workers where ended_at is null) q
  left join retoma.workers w on w.ended_at is null and w.beat_at >= retoma.now() - coalesce(w.silence, :silence::interval) and q.queue = any (w.queues)
 group by queue
 order by queue;

-- name: oldest_ready
-- How long those have been ready that come next, those that wait for a pool apart.
select queue, pool, max(retoma.now() - retoma.ready_since(j)) as age
  from retoma.next_in_line(:most_tenants) j
 group by queue, pool;

-- name: open_runs
-- Runs that are not over.
select v.pipeline, r.state::text as state, sum(r.runs)::bigint as runs
  from (select version, state, count(*) as runs from retoma.runs where ended_at is null group by version, state) r
  join retoma.versions v on v.id = r.version
 group by 1, 2
 order by 1, 2;

-- name: count_open_runs
-- How many runs are not over, and how many of them are stuck.
select (select count(*) from retoma.runs where ended_at is null) as open,
       (select count(*) from retoma.stuck s join retoma.runs r on r.id = s.run where r.state = 'stuck') as stuck;

-- name: runs_not_begun
-- Runs whose time has come and in which no work has begun, among the oldest that are open.
select v.pipeline, count(*) as runs
  from retoma.runs_not_begun(:most_runs) r
  join retoma.versions v on v.id = r.version
 group by 1
 order by 1;

-- name: tally
select retoma.tally(:limit);

-- name: tallies
select pipeline, what, outcome, under, times, seconds
  from retoma.tallies
 order by pipeline, what, outcome, under;

-- name: delivery_figures
-- What is owed, what is dead and could be sent again, endpoints that get nothing any more, and by how much the sending is late.
select count(*) filter (where state = 'due') as due, count(*) filter (where state = 'sending') as sending,
       (select count(*) from retoma.deliveries d join retoma.endpoints e on e.id = d.endpoint
         where d.state = 'dead' and e.disabled_at is null) as dead,
       (select count(*) from retoma.endpoints where disabled_at is not null) as disabled,
       retoma.now() - min(next_at) filter (where next_at <= retoma.now()) as late_for
  from retoma.deliveries
 where ended_at is null;

-- name: pool_figures
-- The slots of each pool, the jobs that wait for them, and how long ago one last got its slots.
select p.name, p.capacity, coalesce(h.used, 0)::int as used, coalesce(w.waiting, 0)::int as waiting,
       coalesce(p.paused_until > retoma.now(), false) as is_paused, retoma.now() - h.newest_at as newest_for
  from retoma.pools p
  left join (select h.pool, sum(h.slots) as used, max(j.started_at) as newest_at
               from retoma.holdings h
               join retoma.jobs j on j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision
              group by h.pool) h on h.pool = p.name
  left join retoma.jobs_by_pool() w on w.pool = p.name
 order by p.name;

-- name: pipeline_figures
-- What the runs of a pipeline that ended since then, and those that are open, have come to. An open run counts with the steps
-- that it has finished since then, and with its time if only the steps named here are left. What took no time of theirs is taken
-- off: open reviews, the steps named here from when all that they need had ended, and the time between an end and what was asked
-- for after it.
with counted as (
  select r.id, r.revision, r.version, greatest(r.created_at, r.run_at) as began_at, r.ended_at, r.state = 'failed' as has_failed,
         case
           when r.state = 'completed' then r.ended_at
           when r.ended_at is null and r.state <> 'pending' and cardinality(:without::text[]) > 0 then (
             select max(j.ended_at) filter (where j.step <> all (:without::text[]))
               from retoma.standing(r.id) j
             having bool_and(j.step = any (:without::text[]) or j.state in ('succeeded', 'skipped')))
         end as done_at
    from retoma.runs r
    join retoma.versions g on g.id = r.version
   where g.pipeline = :pipeline and (r.ended_at >= :since or r.ended_at is null)
), done as (
  select c.id, c.revision, c.version, c.began_at, c.done_at
    from counted c
   where c.done_at >= :since
), aside as (
  select e.id as run, v.opened_at as first_at, coalesce(v.applied_at, v.ended_at) as last_at
    from done e
    join retoma.reviews v on v.run = e.id
   where v.planned
  union all
  select e.id, greatest(j.created_at, max(n.ended_at)), j.ended_at
    from done e
    join retoma.jobs j on j.run = e.id and j.step = any (:without::text[]) and j.attempt > 0
    left join retoma.edges g on g.version = e.version and g.to_step = j.step
    left join retoma.jobs n on n.run = e.id and n.step = g.from_step and n.revision <= j.revision
   group by e.id, j.step, j.item, j.revision, j.created_at, j.ended_at
  union all
  select e.id, v.at, (select n.at from retoma.events n where n.run = v.run and n.id > v.id order by n.id limit 1)
    from done e
    join retoma.events v on v.run = e.id
   where e.revision > 1 and v.kind = 'end'
), took as (
  select extract(epoch from e.done_at - e.began_at - coalesce((
           select sum(upper(span) - lower(span))
             from (select unnest(range_agg(tstzrange(a.first_at, a.last_at)) * tstzmultirange(tstzrange(e.began_at, e.done_at)))
                     from aside a
                    where a.run = e.id and a.last_at > a.first_at) as spans (span)), '0'))::float as seconds
    from done e
), made as (
  select count(*) as steps, count(*) filter (where j.failures > 0 or j.deaths > 0) as retried
    from counted e
    join retoma.jobs j on j.run = e.id
    join retoma.steps s on s.version = e.version and s.step = j.step
   where j.attempt > 0 and j.state in ('succeeded', 'failed', 'quarantined') and s.review is null and not s.hidden
     and (e.ended_at is not null or j.ended_at >= :since)
)
select (select count(*) from counted where ended_at is not null)::int as ended,
       (select count(*) from counted where has_failed)::int as failed,
       made.steps::int as steps, made.retried::int as retried,
       (select count(*) from took)::int as timed,
       (select avg(seconds) from took) as mean_seconds,
       (select percentile_cont(0.5) within group (order by seconds) from took) as median_seconds
  from made;
