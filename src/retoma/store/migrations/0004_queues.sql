-- Adds what people set for queues, and the request that a worker drains. Existing queues and workers have none.

-- A queue without a row is neither paused nor limited.
create table retoma.queues (
  name text collate "C" primary key,
  concurrency int,                         -- the most jobs of it that all workers run at once; null: any number
  paused_at timestamptz,                   -- since then, no job of it is claimed
  paused_by text,
  pause_reason text,
  constraint a_pause_has_an_author check ((paused_at is null) = (paused_by is null)),
  constraint concurrency_is_above_zero check (concurrency > 0),
  -- Every claim reads these rows: there must be none without need.
  constraint a_row_restricts_its_queue check (paused_at is not null or concurrency is not null)
);

-- The jobs that were claimed from queues with a limit. A row counts while its job runs with this fence; the next claim from the
-- queue removes all others, so nothing else needs to.
create table retoma.queue_slots (
  queue text collate "C" not null,
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  fence int not null,
  primary key (queue, run, step, item, revision)
);

alter table retoma.workers
  add column drain_requested_at timestamptz,  -- since then it claims nothing; it ends when its jobs have ended
  add column drain_requested_by text;

-- A copy for the calls of the worker, which read only this row.
alter table retoma.worker_links add column is_draining boolean not null default false;
