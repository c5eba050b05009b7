-- Adds what people set for queues. A queue without a row is neither paused nor limited.

create table retoma.queues (
  name text collate "C" primary key,
  paused_at timestamptz,                   -- since then, no job of it is claimed
  paused_by text,
  pause_reason text,
  constraint a_pause_has_an_author check ((paused_at is null) = (paused_by is null)),
  -- Every claim reads these rows: there must be none without need.
  constraint a_row_restricts_its_queue check (paused_at is not null)
);
