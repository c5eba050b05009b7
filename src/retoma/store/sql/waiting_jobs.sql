-- name: list_waiting_jobs
-- The jobs of a run whose dependencies have ended and that do not run, grouped by what is known of each.
select g.pipeline, j.step, j.queue, j.code, j.worker_deaths > 0 as suspect, j.state = 'parked' as parked, v.id is not null as in_review,
       o.run is null and l.next_at is not null as cleaning_up, j.pool, s.slots, t.tenant_slots, count(*) as jobs,
       min(coalesce(j.ready_at, nullif(o.next_at, 'infinity'), l.next_at)) as ready_at, min(j.item) as item,
       min(case when o.poll_interval is null then o.external_id #>> '{}' end)::uuid as child
  from retoma.jobs j
  join retoma.steps s on s.version = j.version and s.step = j.step
  join retoma.versions g on g.id = j.version
  left join lateral (
    select retoma.tenant_slots_left(p, j.tenant, '{}') as tenant_slots from retoma.pools p where p.name = j.pool and p.per_tenant is not null) t on true
  left join retoma.external_work o
    on o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision and o.ended_at is null
  left join lateral (
    select min(e.next_at) as next_at from retoma.effects e
     where j.state = 'parked' and e.run = j.run and e.step = j.step and e.item = j.item and e.revision = j.revision) l on true
  left join retoma.reviews v
    on v.run = j.run and v.step = j.step and v.item = j.item and v.revision = j.revision and v.applied_at is null
 where j.run = :run and (j.state = 'ready' and j.worker is null or j.state = 'parked')
 group by g.pipeline, j.step, j.queue, j.code, j.worker_deaths > 0, j.state = 'parked', v.id is not null,
          o.run is null and l.next_at is not null, o.run is not null and o.poll_interval is null, j.pool, t.tenant_slots, s.slots, j.ready_at is null;

-- name: count_held_jobs
-- How many jobs each worker holds.
select j.worker, count(*) as jobs
  from retoma.runs r
  join retoma.jobs j on j.run = r.id and j.state = 'running'
 where r.ended_at is null
 group by j.worker;
