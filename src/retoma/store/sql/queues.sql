-- name: list_queues
-- What each queue holds. Each part reads an index of its own, so that the cost does not grow with history.
with ready as (
  select queue, count(*) as jobs, min(greatest(created_at, started_at)) as oldest_at
    from (select queue, created_at, started_at from retoma.jobs
           where worker is null and waiting_on = 0 and ready_at is null and deaths = 0 and pool is null
          union all
          select queue, created_at, started_at from retoma.jobs
           where worker is null and waiting_on = 0 and ready_at is null and deaths > 0 and pool is null
          union all
          select queue, created_at, started_at from retoma.jobs
           where worker is null and waiting_on = 0 and ready_at is null and pool is not null) as r
   group by queue
), delayed as (
  select queue, count(*) as jobs
    from retoma.jobs
   where ready_at is not null
   group by queue
), running as (
  select j.queue, count(*) as jobs
    from retoma.runs r
    join retoma.jobs j on j.run = r.id and j.state = 'running'
   where r.ended_at is null
   group by j.queue
)
select queue, coalesce(ready.jobs, 0) as ready, coalesce(running.jobs, 0) as running, coalesce(delayed.jobs, 0) as delayed,
       retoma.now() - ready.oldest_at as oldest_for
  from ready
  full join delayed using (queue)
  full join running using (queue)
 order by queue;
