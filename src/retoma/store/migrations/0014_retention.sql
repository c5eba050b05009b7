-- Adds how long ended runs are kept, and what is left of those that were removed. Existing data does not change; workers of this release
-- begin to remove runs that ended more than 90 days ago, those with failures after 365 days. `RETOMA_RETENTION_DAYS=0` keeps all.

-- How long ended runs are kept. The most specific rule applies: pipeline and tenant, pipeline, tenant, the pipeline's own declaration,
-- neither, and without any rule the settings of the process.
create table retoma.retention_rules (
  pipeline text collate "C",               -- null: any
  tenant int references retoma.tenants,    -- null: any
  final_class text not null,
  keep interval,                           -- after the end of the run and of its last delivery; null: for ever
  set_by text not null,
  set_at timestamptz not null,
  constraint final_class_is_known check (final_class in ('ended', 'failed')),
  constraint keep_is_not_negative check (keep >= '0')
);

create unique index one_retention_rule_per_pipeline_tenant_and_class
  on retoma.retention_rules (pipeline, tenant, final_class) nulls not distinct;

-- As the application last declared it; null: it declares none.
alter table retoma.versions add column retention interval;

-- Runs that are kept whatever the rules say, until a person releases them.
create table retoma.run_holds (
  run uuid primary key,
  held_by text not null,
  held_at timestamptz not null,
  reason text not null
);

-- How far the removal of runs and files has come, so that any process can continue it. A pass checks all runs that may be due, version by
-- version. The last row to be written by each batch.
create table retoma.retention_progress (
  only_row boolean primary key default true check (only_row),
  version int not null default 0,          -- that the pass has reached
  after_run uuid,                          -- of that version: those up to it are checked; null: none
  pass_ended_at timestamptz,               -- of the last pass; null: one is in progress
  indexed_to uuid,                         -- runs of earlier releases whose files are indexed
  indexed_at timestamptz,                  -- when all of them were; until then no file is removed
  file_shard int not null default 0,       -- the part of the file store that is checked next, from 0 to 255
  files_checked_at timestamptz,            -- when the last pass over the file store ended
  removed_runs bigint not null default 0,  -- in total
  removed_files bigint not null default 0,
  removed_file_bytes bigint not null default 0
) with (fillfactor = 50);

insert into retoma.retention_progress default values;

-- How many runs were removed on each day, kept for 400 days.
create table retoma.run_removals (
  day date not null,
  tenant int not null,
  pipeline text collate "C" not null,
  cause text not null,
  runs bigint not null,
  jobs bigint not null,
  last_at timestamptz not null,
  primary key (day, tenant, pipeline, cause),
  constraint cause_is_known check (cause in ('expired', 'erased'))
);

-- What removed runs have cost, by the hour of UTC.
create table retoma.charge_rollups (
  hour timestamptz not null,
  tenant int not null,
  pipeline text collate "C" not null,
  step text collate "C" not null,
  provider text collate "C" not null,
  resource text collate "C" not null,
  charges bigint not null,
  tokens_in bigint not null,
  tokens_out bigint not null,
  units double precision not null,
  micros bigint not null,
  unpriced bigint not null,
  primary key (tenant, hour, pipeline, step, provider, resource)
);

-- The decisions at reviews of removed runs, for the metrics of reviewers: medians need each of them.
create table retoma.removed_decisions (
  decided_at timestamptz not null,
  opened_at timestamptz not null,
  due_at timestamptz,
  tenant int not null,
  pipeline text collate "C" not null,
  step text collate "C" not null,
  decided_by text not null,
  decided_person int,
  state retoma.review_state not null,
  planned boolean not null,
  is_first boolean not null
);

create index removed_decisions_by_time on retoma.removed_decisions (decided_at);

-- Which runs name which files in their data. A file that nothing names is removed.
create table retoma.file_names (
  run uuid not null,
  digest bytea not null,                   -- the SHA-256 of the content
  primary key (run, digest)
);

create index file_names_by_digest on retoma.file_names (digest);

-- A file that was just stored is not named yet. Existing rows count from now.
alter table retoma.tenant_files add column granted_at timestamptz not null default now();
create index tenant_files_by_digest on retoma.tenant_files (digest);

-- Keys outlive their runs; those of removed runs are deleted in the end.
create index start_keys_by_age on retoma.start_keys using brin (created_at) with (pages_per_range = 32, autosummarize = on);
create index audit_log_by_age on retoma.audit_log using brin (at) with (pages_per_range = 32, autosummarize = on);
