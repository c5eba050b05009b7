-- Adds webhook subscriptions, events with data of their own, the keys that sign links to files, and when external work
-- began. It rewrites no rows.

-- The events of every run of its tenant that a URL has subscribed to; null if only single runs name it. Of tenant -1: of
-- the runs of all tenants.
alter table retoma.endpoints add column events text[];
create index endpoints_subscribed on retoma.endpoints (tenant) where events is not null;

-- What an event says beside its run: which review, why it is stuck.
alter table retoma.deliveries add column data json;

-- Events that are written where a run must not be locked. The next to lock it turns them into deliveries.
create table retoma.announcements (
  id bigint generated always as identity primary key,
  run uuid not null,
  event text not null,
  data json,
  at timestamptz not null
);
create index announcements_of_run on retoma.announcements (run, id);

create table retoma.signing_keys (
  purpose text collate "C" primary key,
  secret text not null
);

-- When the attempt began that handed it over: its job starts again when it has ended.
alter table retoma.outside add column started_at timestamptz;

-- It returns one column more now.
drop function if exists retoma.record_attempt(uuid, int, text, interval, interval, int, int, text, text);
