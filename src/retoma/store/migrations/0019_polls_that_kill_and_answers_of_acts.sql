-- Remember who polls external work and how many workers died of it, each worker's own heartbeat timeout, and the first answer of
-- each act by its idempotency key. Quick: it adds columns without rewriting a table.
alter table retoma.outside
  add column looker int,                       -- the worker that polls it just now
  add column deaths int not null default 0;    -- workers in a row that died while they polled it
create index outside_by_looker on retoma.outside (looker) where looker is not null;
drop function if exists retoma.looks_due(int[], int, interval);

-- The heartbeat timeout is each worker's own: a process with a shorter one must not declare another dead.
alter table retoma.workers add column silence interval;
drop function if exists retoma.sweep(interval);

-- What each act on a run or a review was answered with, by its idempotency key.
create table retoma.act_keys (
  subject uuid not null,
  key text not null,
  digest text not null,       -- of the whole request
  answer jsonb not null,
  created_at timestamptz not null,
  primary key (subject, key)
);
