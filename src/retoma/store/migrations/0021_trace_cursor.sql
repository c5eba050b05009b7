-- Remember up to which event ended runs were traced, so one process exports the span of each. Adds a table with one row, and locks
-- nothing that is in use.

-- Runs are traced if their end is an event up to `through`. Those up to `next` follow once the transactions in `writers` have
-- ended, as in `metric_cursor`.
create table retoma.trace_cursor (
  through bigint not null,
  next bigint not null,
  writers text[] not null,
  read_at timestamptz                      -- null: never, because no process has exported traces
);

insert into retoma.trace_cursor (through, next, writers) values (0, 0, '{}');
