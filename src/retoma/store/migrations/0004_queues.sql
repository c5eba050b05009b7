-- Adds what people set for queues, and the request that a worker drains. Existing queues and workers have none.

-- A queue without a row is neither paused nor limited.
create table retoma.queues (
  name text collate "C" primary key,
  paused_at timestamptz,                   -- since then, no job of it is claimed
  paused_by text,
  pause_reason text,
  constraint a_pause_has_an_author check ((paused_at is null) = (paused_by is null)),
  -- Every claim reads these rows: there must be none without need.
  constraint a_row_restricts_its_queue check (paused_at is not null)
);

alter table retoma.workers
  add column drain_requested_at timestamptz,  -- since then it claims nothing; it ends when its jobs have ended
  add column drain_requested_by text;

-- A copy for the calls of the worker, which read only this row.
alter table retoma.worker_links add column is_draining boolean not null default false;
