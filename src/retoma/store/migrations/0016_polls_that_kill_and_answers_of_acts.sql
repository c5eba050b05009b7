-- Remember who polls external work and how many workers died of it, each worker's own heartbeat timeout, and the first answer of
-- each act by its idempotency key. Quick: it adds columns without rewriting a table.
alter table retoma.outside
  add column looker int,                       -- the worker that polls it just now
  add column deaths int not null default 0;    -- workers in a row that died while they polled it
create index outside_by_looker on retoma.outside (looker) where looker is not null;
drop function if exists retoma.looks_due(int[], int, interval);
