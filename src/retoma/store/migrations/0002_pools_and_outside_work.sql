-- Adds pools (shared capacity) and work that is done outside. Jobs get a column; no job is rewritten.

-- What of a pool can change: its numbers, by a person; its tokens and turns, by the claims that share it out.
create table retoma.pools (
  name text collate "C" primary key,
  declared json not null,                  -- the numbers as the application last gave them
  capacity int not null,
  rate double precision,                   -- jobs that may begin in a second
  burst int not null default 1,
  tokens double precision not null,        -- of the rate, at `tokens_at`
  tokens_at timestamptz not null,
  paused_until timestamptz,                -- its provider said "too many"
  patience interval not null default '60 seconds', -- how long smaller jobs may pass one that does not fit
  last_tenant int not null default 0,      -- who had the last turn
  -- The job that came first and did not fit.
  head_run uuid,
  head_step text collate "C",
  head_item text collate "C",
  head_revision int,
  head_at timestamptz,
  head_seen_at timestamptz,                -- by a worker that could take it
  constraint capacity_is_not_negative check (capacity >= 0),
  constraint rate_is_above_zero check (rate > 0)
) with (fillfactor = 50);

-- Who holds slots of a pool: every job with a pool that runs or is parked, and nobody else.
create table retoma.holdings (
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  pool text collate "C" not null references retoma.pools,
  slots int not null,
  primary key (run, step, item, revision),
  constraint slots_are_above_zero check (slots > 0)
);

create index holdings_of_pool on retoma.holdings (pool) include (slots);

alter table retoma.steps
  add pool text collate "C",
  add slots int not null default 1;

alter table retoma.edges add pool text collate "C";          -- the target's

-- Null once its outside work has ended: what is left of its step needs no slot.
alter table retoma.jobs add pool text collate "C";

alter type retoma.motion add attribute pool text;

drop index retoma.jobs_ready, retoma.jobs_suspect;
create index jobs_ready on retoma.jobs (queue, tenant, rank)
  where worker is null and waiting_on = 0 and ready_at is null and deaths = 0 and pool is null;
create index jobs_suspect on retoma.jobs (queue, rank)
  where worker is null and waiting_on = 0 and ready_at is null and deaths > 0 and pool is null;
create index jobs_for_pool on retoma.jobs (pool, tenant, rank, run, position)
  where worker is null and waiting_on = 0 and ready_at is null and pool is not null;

-- Which job: enough to find its row.
create type retoma.handle as (run uuid, step text, item text, revision int);

-- What a step had done before it was done again: recorded parts of a job, by name.
create table retoma.effects (
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  name text collate "C" not null,
  fence int not null,                      -- of the lease that may say how it ended
  begun_at timestamptz not null,
  done_at timestamptz,
  value json,
  primary key (run, step, item, revision, name),
  constraint done_means_a_value check ((done_at is null) = (value is null))
);

-- Work that goes on outside while its job is parked.
create table retoma.outside (
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  version int not null,
  handle json not null,
  poll text,                               -- where the function that asks for it is found
  cancel text,
  every interval not null,
  queued_for interval,                     -- how long it may wait outside, work, and both
  running_for interval,
  total_for interval not null,
  state text not null default 'queued',
  looks int not null default 0,            -- the number of the last look; a report of an earlier one is refused
  failed_looks int not null default 0,     -- in a row
  next_at timestamptz not null,            -- when somebody should look
  parked_at timestamptz not null,
  running_at timestamptz,
  stopping_at timestamptz,                 -- when its end was first asked for
  ended_at timestamptz,
  progress real,
  result json,
  error json,
  primary key (run, step, item, revision),
  constraint state_is_known check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'lost')),
  constraint an_end_has_a_time check ((state in ('succeeded', 'failed', 'cancelled', 'lost')) = (ended_at is not null))
) with (fillfactor = 70);

create index outside_due on retoma.outside (next_at) where ended_at is null;

-- One-time addresses by which the outside tells that something happened. The token itself is nowhere.
create table retoma.callbacks (
  token_hash bytea primary key,
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  expires_at timestamptz not null,
  called_at timestamptz,
  body json
);

create index callbacks_of_job on retoma.callbacks (run, step, item, revision);

-- It gives one more fact now.
drop function if exists retoma.promote(int);
