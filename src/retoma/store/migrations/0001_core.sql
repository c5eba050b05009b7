-- Creates Retoma's tables in the schema `retoma`. Touches nothing else in the database.

create type retoma.job_state as enum
  ('waiting', 'ready', 'running', 'parked', 'succeeded', 'failed', 'skipped', 'cancelled', 'quarantined');

create type retoma.run_state as enum
  ('pending', 'running', 'paused', 'needs_review', 'stuck', 'cancelling',
   'completed', 'completed_with_errors', 'failed', 'rejected', 'cancelled');

-- The permitted moves between states, as data; `states.py` holds the same.
create table retoma.moves (
  of text not null,
  before text not null,
  after text not null,
  primary key (of, before, after)
);

create table retoma.tenants (
  id int generated always as identity primary key,
  name text not null unique,
  created_at timestamptz not null default now()
);

-- An immutable snapshot of a pipeline's graph, stored when it is first used.
create table retoma.versions (
  id int generated always as identity primary key,
  pipeline text not null,
  digest text not null,
  graph json not null,
  sinks int not null,
  created_at timestamptz not null default now(),
  unique (pipeline, digest)
);

create table retoma.steps (
  version int not null references retoma.versions,
  step text collate "C" not null,
  place int not null,                      -- in the order of definition
  queue text collate "C" not null,
  head_start bigint not null,              -- microseconds by which its priority puts it ahead
  needs int not null,                      -- needs that must be final before it can run
  each boolean not null,
  source text collate "C",                 -- of an `each` step: whose result is the list of its items
  hidden boolean not null,                 -- no user wrote it
  born text not null,                      -- at the run's start, with its one need, or with the expansion of its items
  on_failure text not null,
  item_from text,                          -- the step whose rows keep the item's value
  primary key (version, step),
  constraint born_is_known check (born in ('start', 'need', 'expansion')),
  constraint on_failure_is_known check (on_failure in ('stop', 'continue'))
);

-- What the end of a step sets in motion. Columns of the target are copied here, so that finishing reads one table.
create table retoma.edges (
  version int not null references retoma.versions,
  from_step text collate "C" not null,
  to_step text collate "C" not null,       -- '' is the run itself
  act text not null,
  via text collate "C" not null default '', -- the `each` step for whose items this edge stands in until they exist
  same_item boolean not null,              -- the target's job is of the same item; otherwise it is of none
  optional boolean not null,               -- the target can run without this result
  light boolean not null,                  -- the target reads nothing but this result and the run's input
  queue text collate "C" not null,
  head_start bigint not null,              -- the target's, less that of the step that ended
  needs int not null,
  primary key (version, from_step, to_step, act, via),
  constraint act_is_known check (act in ('make', 'count', 'share', 'expand', 'end'))
);

-- Which results a step's parameters read, in the order of its parameters.
create table retoma.reads (
  version int not null references retoma.versions,
  step text collate "C" not null,
  position int not null,
  from_step text collate "C" not null,
  what text not null,
  primary key (version, step, position),
  constraint what_is_known check (what in ('result', 'result of the item', 'results of all items'))
);

-- One row per worker process. Its id is new at each process start and never used again.
create table retoma.workers (
  id int generated always as identity primary key,
  name text not null,
  queues text[] not null,
  concurrency int not null,
  started_at timestamptz not null,
  beat_at timestamptz not null,
  ended_at timestamptz
) with (fillfactor = 50);

create index workers_alive on retoma.workers (id) where ended_at is null;

-- The last call of each of a worker's connections. A lost answer is found by its number, and a worker that
-- was declared dead has no lanes, so that it can claim nothing any more.
create table retoma.lanes (
  worker int not null references retoma.workers,
  lane int not null,
  call bigint not null,
  primary key (worker, lane)
) with (fillfactor = 50);

create table retoma.runs (
  id uuid primary key,
  tenant int not null,
  version int not null,
  state retoma.run_state not null,
  revision int not null default 1,
  open_sinks int not null,                 -- jobs that nothing depends on and that are not final
  with_errors boolean not null default false,
  ends_as retoma.run_state,                -- set once the run is stopping: nothing new starts
  input json not null,
  created_at timestamptz not null,
  run_at timestamptz not null,
  ended_at timestamptz,
  constraint over_means_ended check
    ((state in ('completed', 'completed_with_errors', 'failed', 'rejected', 'cancelled')) = (ended_at is not null))
) with (fillfactor = 70);

create index runs_open on retoma.runs (id) where ended_at is null;

-- Which start a key belongs to. Kept apart from runs, so that it outlives them.
create table retoma.start_keys (
  tenant int not null,
  pipeline text not null,
  key text not null,
  run uuid not null,
  digest bytea not null,
  created_at timestamptz not null,
  primary key (tenant, pipeline, key)
);

create table retoma.jobs (
  run uuid not null,
  rank bigint not null,                    -- the order of claiming: the run's start less its head start, in microseconds
  version int not null,
  tenant int not null,
  revision int not null,
  waiting_on int not null default 0,       -- needs that are not final
  worker int,                              -- null: nobody's; 0: it ended without a worker
  fence int not null default 0,
  position int not null default 0,         -- of its item in the fan-out
  spent_ms int not null default 0,         -- in earlier attempts and the delays between them
  attempt int not null default 0,     
  failures int not null default 0,         -- attempts that failed and were followed by another
  crashes int not null default 0,          -- children that died while they ran it
  deaths int not null default 0,           -- workers that did
  state retoma.job_state not null,
  ending boolean not null default false,   -- its run is stopping: its end starts nothing
  step text collate "C" not null,
  item text collate "C" not null default '',
  queue text collate "C" not null,
  created_at timestamptz not null,
  ready_at timestamptz,                    -- set while it is delayed
  started_at timestamptz,
  ended_at timestamptz,
  code text,                               -- why there is no result, or why it waits
  input json,                              -- the item's value
  output json,
  primary key (run, step, item, revision)
) with (fillfactor = 50);

-- No index may hold a column that finishing a job writes: its updates must stay within the page (HOT).
create index jobs_ready on retoma.jobs (queue, tenant, rank)
  where worker is null and waiting_on = 0 and ready_at is null and deaths = 0;
-- A job whose worker died is claimed alone, so that the one that kills is found.
create index jobs_suspect on retoma.jobs (queue, rank)
  where worker is null and waiting_on = 0 and ready_at is null and deaths > 0;
create index jobs_due on retoma.jobs (ready_at) where ready_at is not null;

create table retoma.events (
  id bigint generated always as identity,
  run uuid not null,
  at timestamptz not null,
  revision int not null,
  attempt int,
  worker int,
  kind text not null,
  step text collate "C",
  item text collate "C",
  data json,
  constraint kind_is_known check (kind in ('start', 'result', 'failure', 'retry', 'act', 'end'))
);

create index events_of_run on retoma.events (run, id);

-- The clock of all leases, delays and deadlines. Tests replace it.
create function retoma.now() returns timestamptz language sql stable as 'select clock_timestamp()';

insert into retoma.moves (of, before, after)
select 'job', before, after
  from (values
    ('waiting', '{ready, skipped, cancelled}'::text[]),
    ('ready', '{running, cancelled}'),
    ('running', '{ready, parked, succeeded, failed, skipped, cancelled, quarantined}'),
    ('parked', '{ready, succeeded, failed, skipped, cancelled, quarantined}')
  ) as moves (before, afters), unnest(afters) as after;

insert into retoma.moves (of, before, after)
select 'run', before, after
  from (values
    ('pending', '{running, cancelling, cancelled}'::text[]),
    ('running', '{paused, needs_review, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('paused', '{running, needs_review, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('needs_review', '{running, paused, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('stuck', '{running, paused, needs_review, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('cancelling', '{cancelled}')
  ) as moves (before, afters), unnest(afters) as after;

create function retoma.refuse_move() returns trigger language plpgsql as $$
begin
  raise exception 'a % may not go from % to %', tg_argv[0], old.state, new.state
    using errcode = 'check_violation', constraint = 'only_permitted_moves';
end $$;

-- The condition is an expression of the executor, so that a permitted move calls no function.
create trigger only_permitted_moves
  after update of state on retoma.jobs for each row
  when (old.state <> new.state and not case old.state
    when 'running' then new.state <> 'waiting'
    when 'ready' then new.state in ('running', 'cancelled')
    when 'waiting' then new.state in ('ready', 'skipped', 'cancelled')
    when 'parked' then new.state not in ('waiting', 'running')
    else false end)
  execute function retoma.refuse_move('job');

create trigger only_permitted_moves
  after update of state on retoma.runs for each row
  when (old.state <> new.state and not case
    when old.state in ('running', 'paused', 'needs_review', 'stuck') then new.state <> 'pending'
    when old.state = 'pending' then new.state in ('running', 'cancelling', 'cancelled')
    when old.state = 'cancelling' then new.state = 'cancelled'
    else false end)
  execute function retoma.refuse_move('run');

create function retoma.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'an event is a fact and may not be changed' using errcode = 'check_violation';
end $$;

create trigger events_are_append_only
  before update on retoma.events for each statement
  execute function retoma.refuse_change();

-- One edge of one job that has ended.
create type retoma.motion as (
  run uuid, version int, tenant int, revision int, rank bigint, position int, item text, from_step text,
  missing text,   -- null: there is a result; otherwise why there is none
  outcome int,    -- which outcome of the call it comes from
  items int,      -- how many items the job's result has, if it is the source of a fan-out
  to_step text, act text, via text, same_item boolean, optional boolean, light boolean,
  queue text, head_start bigint, needs int
);

-- A job that was made already claimed by the worker whose result it needs.
create type retoma.kept as (run uuid, step text, item text, revision int, version int, tenant int);

-- A claimed job with all that its worker must know.
create type retoma.claimed as (
  what text, run uuid, step text, item text, revision int, fence int, attempt int, failures int, deaths int, spent_ms int,
  version int, tenant int, run_input json, item_value json, results json[]
);
