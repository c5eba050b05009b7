-- name: record_events
-- Keep the events whose number and id are not known yet, and return their numbers.
insert into retoma.inbound_events (app, stream, tenant, sequence, event_id, body, received_at)
select :app, :stream, :tenant, s.sequence, s.event_id, s.body, retoma.now()
  from unnest(:sequences::bigint[], :event_ids::text[], :bodies::json[]) as s (sequence, event_id, body)
 order by s.sequence
    on conflict do nothing
returning sequence;

-- name: find_event_ids
select e.sequence, e.event_id
  from retoma.inbound_events e
 where e.app = :app and e.stream = :stream and e.sequence = any (:sequences::bigint[]);

-- name: list_events
-- The events after a number, as far as none is missing.
select e.event_id, e.sequence, e.body::text as body, e.received_at
  from (select e.*, row_number() over (order by e.sequence) as position
          from retoma.inbound_events e
         where e.app = :app and e.stream = :stream and e.sequence > :after) e
 where e.sequence = :after + e.position
 order by e.sequence;

-- name: find_gap
-- The number of the last event before the first missing one, if later ones have arrived.
select g.previous
  from (select e.sequence, lag(e.sequence, 1, 0::bigint) over (order by e.sequence) as previous
          from retoma.inbound_events e
         where e.app = :app and e.stream = :stream) g
 where g.sequence > g.previous + 1
 order by g.sequence
 limit 1;
