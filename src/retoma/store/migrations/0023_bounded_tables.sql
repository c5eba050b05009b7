-- Bounds the tables that only grew: inbound events get a retention, and old sums of charges are deleted or compacted. Builds indexes on
-- events of other systems and on sums of charges, which cannot be written until the migration commits. Deletes nothing by itself.

-- Up to which number the events of a stream were removed: one that arrives again is still known.
create table retoma.inbound_streams (
  app text not null,
  stream text not null,
  tenant int,                              -- of the first event that had one; erased with it
  removed_through bigint not null default 0,
  removed_at timestamptz,                  -- when events were last removed; null: never
  primary key (app, stream)
);

create index inbound_streams_by_removal on retoma.inbound_streams (removed_at) where removed_at is not null;
create index inbound_streams_by_tenant on retoma.inbound_streams (tenant) where tenant is not null;
create index inbound_events_by_time on retoma.inbound_events (received_at);

create index charge_sums_by_time on retoma.charge_sums (quarter);

-- Old hours are compacted into days, which begin at midnight of UTC.
create index charge_rollups_by_hour on retoma.charge_rollups (hour) where extract(hour from hour at time zone 'UTC') <> 0;

-- Up to which run the charges were checked: those of a removed run are rolled up like the others.
alter table retoma.retention_progress add column charges_checked_to uuid;

-- It has one more parameter now.
drop function if exists retoma.delete_old_rows(interval, interval, int);

-- The digests of the files that a text of JSON names. Part of indexes: it must never return anything else for the same text.
create function retoma.list_digests(p_text text) returns bytea[] immutable parallel safe language sql as $$
  select array(select decode(f.found[1], 'hex') from regexp_matches(p_text, '"file": ?"([0-9a-f]{64})"', 'g') as f (found));
$$;

-- The files that are named outside runs, so that the collection of files reads none of these rows. Without a list of pending entries,
-- which each search would read.
create index profiles_by_file on retoma.profiles using gin (retoma.list_digests(value::text)) with (fastupdate = off)
  where position('"file"' in value::text) > 0;
create index review_drafts_by_file on retoma.review_drafts using gin (retoma.list_digests(draft::text)) with (fastupdate = off)
  where position('"file"' in draft::text) > 0;
create index tenant_facts_by_file on retoma.tenant_facts using gin (retoma.list_digests(source::text)) with (fastupdate = off)
  where position('"file"' in source::text) > 0;
create index inbound_events_by_file on retoma.inbound_events using gin (retoma.list_digests(body::text)) with (fastupdate = off)
  where position('"file"' in body::text) > 0;
