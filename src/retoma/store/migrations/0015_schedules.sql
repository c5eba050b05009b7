-- Adds schedules, which start runs at set times, and the scope to change them. Existing data does not change.

create table retoma.schedules (
  id int generated always as identity primary key,
  tenant int not null references retoma.tenants,
  name text collate "C" not null,
  title text,                              -- what people call it
  pipeline text not null,
  cron text,
  every interval,
  time_zone text not null,
  anchor_at timestamptz not null,          -- from where `every` counts
  inputs json not null,                    -- may have placeholders
  catch_up text not null,
  catch_up_limit int not null,
  jitter interval not null,
  overlap text not null,
  declared_by text not null,
  application text,                        -- whose code declares it
  revision int not null default 1,         -- counts changes by people and by code, so nothing starts by an old rule
  next_at timestamptz,                     -- null: never again
  starts_at timestamptz,                   -- `next_at` with its jitter
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  last_due_at timestamptz,                 -- of the last run that it started when it was due
  last_run uuid,
  created_at timestamptz not null,
  changed_at timestamptz not null,
  changed_by text not null,
  constraint one_schedule_per_name unique (tenant, name),
  constraint a_rule_is_cron_or_an_interval check ((cron is null) <> (every is null)),
  constraint catch_up_is_known check (catch_up in ('skip', 'latest', 'all')),
  constraint overlap_is_known check (overlap in ('allow', 'skip')),
  constraint declared_by_is_known check (declared_by in ('code', 'api')),
  constraint code_has_an_application check ((declared_by = 'code') = (application is not null)),
  constraint pause_reason_is_known check (pause_reason in ('person', 'removed')),
  constraint a_pause_has_an_author_and_a_reason check (
    (paused_at is null) = (paused_by is null) and (paused_at is null) = (pause_reason is null)),
  constraint start_follows_due_time check (starts_at >= next_at and (starts_at is null) = (next_at is null))
);

create index schedules_by_start on retoma.schedules (starts_at) where paused_at is null;

-- What became of the times at which a schedule was due. The oldest are deleted.
create table retoma.schedule_occurrences (
  schedule int not null references retoma.schedules on delete cascade,
  due_at timestamptz not null,
  trigger text not null default '',        -- of a start by hand: its idempotency key
  recorded_at timestamptz not null,
  count int not null default 1,            -- due times in a row that this row stands for
  triggered_by text,
  run uuid,
  reason text,
  message text,
  primary key (schedule, due_at, trigger),
  constraint an_occurrence_has_a_run_or_a_reason check ((run is null) <> (reason is null)),
  constraint reason_is_known check (reason in ('paused', 'missed', 'overlapping', 'invalid_inputs')),
  constraint a_start_by_hand_has_an_author check ((trigger = '') = (triggered_by is null))
);

-- How many runs the schedules of each pipeline have started, and how late.
create table retoma.schedule_counters (
  pipeline text not null,
  outcome text not null,                   -- `started`, or the reason why not
  count bigint not null default 0,
  late_seconds double precision not null default 0,
  primary key (pipeline, outcome)
);

-- A key may change schedules.
alter table retoma.api_keys drop constraint scopes_are_known;
alter table retoma.api_keys add constraint scopes_are_known check (scopes <@ array[
  'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'reviews:write',
  'schedules:write', 'people:write', 'audit:read', 'admin']);
