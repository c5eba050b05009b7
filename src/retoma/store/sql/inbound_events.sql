-- name: record_events
-- Keep the events whose number and id are not known yet, and return their numbers. The row of the stream is locked, against the removal
-- of old events.
with known as (
  insert into retoma.inbound_streams as s (app, stream, tenant)
  values (:app, :stream, :tenant)
      on conflict (app, stream) do update set tenant = coalesce(s.tenant, excluded.tenant)
  returning s.removed_through
)
insert into retoma.inbound_events (app, stream, tenant, sequence, event_id, body, received_at)
select :app, :stream, :tenant, s.sequence, s.event_id, s.body, retoma.now()
  from unnest(:sequences::bigint[], :event_ids::text[], :bodies::json[]) as s (sequence, event_id, body), known k
 where s.sequence > k.removed_through
 order by s.sequence
    on conflict do nothing
returning sequence;

-- name: find_event_ids
-- Null for an event that was removed.
select s.sequence, e.event_id
  from unnest(:sequences::bigint[]) as s (sequence)
  left join retoma.inbound_events e on e.app = :app and e.stream = :stream and e.sequence = s.sequence
 where e.event_id is not null
    or exists (select from retoma.inbound_streams k where k.app = :app and k.stream = :stream and k.removed_through >= s.sequence);

-- name: list_events
-- The events after a number, as far as none is missing that was not removed.
with first as (
  select greatest(:after::bigint, max(k.removed_through)) as "before"
    from retoma.inbound_streams k
   where k.app = :app and k.stream = :stream
)
select e.event_id, e.sequence, e.body::text as body, e.received_at
  from first f,
       lateral (select i.*, row_number() over (order by i.sequence) as position
                  from retoma.inbound_events i
                 where i.app = :app and i.stream = :stream and i.sequence > f."before") e
 where e.sequence = f."before" + e.position
 order by e.sequence;

-- name: find_gap
-- The number of the last event before the first missing one, if later ones have arrived. Removed events are not missing.
select g.previous
  from (select e.sequence,
               lag(e.sequence, 1, (select coalesce(max(k.removed_through), 0)
                                     from retoma.inbound_streams k
                                    where k.app = :app and k.stream = :stream)) over (order by e.sequence) as previous
          from retoma.inbound_events e
         where e.app = :app and e.stream = :stream) g
 where g.sequence > g.previous + 1
 order by g.sequence
 limit 1;
