-- name: advance_mark
select settled, number, writers
  from retoma.next_mark(:number, :writers);

-- name: list_events_between
-- Events of all runs, or of the runs of these tenants, in the order of their ids.
select e.id, e.run, r.title as run_title, r.tenant, e.at, e.revision, e.attempt, e.kind, e.step, e.item,
       case when octet_length(e.data::text) > 16384 then null else coalesce(p.data, e.data) end::text as data
  from retoma.events e
  join retoma.runs r on r.id = e.run
  left join lateral retoma.add_provider(e) p on true
 where e.id > :after and e.id <= :through and (:tenants::int[] is null or r.tenant = any (:tenants))
 order by e.id
 limit :limit;

-- name: list_run_events_between
select e.id, e.run, r.title as run_title, r.tenant, e.at, e.revision, e.attempt, e.kind, e.step, e.item,
       case when octet_length(e.data::text) > 16384 then null else coalesce(p.data, e.data) end::text as data
  from retoma.events e
  join retoma.runs r on r.id = e.run
  left join lateral retoma.add_provider(e) p on true
 where e.run = :run and e.id > :after and e.id <= :through
 order by e.id
 limit :limit;

-- name: get_run_states
select id, state::text as state
  from retoma.runs
 where id = any (:runs::uuid[]) and (not :only_ended or ended_at is not null);

-- name: get_last_event_id
-- The id of a run's newest event.
select max(id) as id
  from retoma.events
 where run = :run;
