-- Creates Retoma's tables in the schema `retoma`. It touches nothing else in the database.

-- # States

create type retoma.job_state as enum
  ('waiting', 'ready', 'running', 'parked', 'succeeded', 'failed', 'skipped', 'cancelled', 'quarantined');

create type retoma.run_state as enum
  ('pending', 'running', 'paused', 'needs_review', 'stuck', 'cancelling',
   'completed', 'completed_with_errors', 'failed', 'rejected', 'cancelled');

create function retoma.is_final(p_state retoma.run_state) returns boolean immutable language sql as $$
  select p_state in ('completed', 'completed_with_errors', 'failed', 'rejected', 'cancelled');
$$;

create type retoma.review_state as enum ('open', 'approved', 'sent_back', 'rejected', 'expired', 'withdrawn');

create type retoma.delivery_state as enum ('due', 'sending', 'delivered', 'dead');

-- The permitted transitions as data, of which the last statements of this file make triggers. `states.py` holds the same list,
-- and a test compares the two.
create table retoma.transitions (
  entity text not null,
  from_state text not null,
  to_state text not null,
  primary key (entity, from_state, to_state)
);

insert into retoma.transitions (entity, from_state, to_state)
select entity, from_state, to_state
  from (values
    ('job', 'waiting', '{ready, parked, skipped, cancelled}'::text[]),
    ('job', 'ready', '{running, parked, cancelled}'),
    ('job', 'running', '{ready, parked, succeeded, failed, skipped, cancelled, quarantined}'),
    ('job', 'parked', '{ready, cancelled}'),
    ('run', 'pending', '{running, paused, cancelled}'),
    ('run', 'running', '{paused, needs_review, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('run', 'paused', '{running, needs_review, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('run', 'needs_review', '{running, paused, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('run', 'stuck', '{running, paused, needs_review, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
    ('run', 'cancelling', '{cancelled}'),
    -- Only a person's action reopens an ended run, or changes how it ended.
    ('run', 'completed', '{running, paused, needs_review, completed_with_errors}'),
    ('run', 'completed_with_errors', '{running, paused, needs_review, completed}'),
    ('run', 'failed', '{running, paused, needs_review, completed, completed_with_errors}'),
    ('review', 'open', '{approved, sent_back, rejected, expired, withdrawn}'),
    ('review', 'approved', '{open, withdrawn}'),
    ('review', 'sent_back', '{open, withdrawn}'),
    ('review', 'rejected', '{open, withdrawn}'),
    ('delivery', 'due', '{sending, dead}'),
    ('delivery', 'sending', '{due, delivered, dead}'),
    ('delivery', 'dead', '{due}')
  ) as permitted (entity, from_state, to_states), unnest(to_states) as to_state;

-- The triggers that call this function hold the rules in their conditions, so a permitted transition calls no function.
create function retoma.refuse_transition() returns trigger language plpgsql as $$
begin
  raise exception 'a % cannot change from % to %', tg_argv[0], old.state, new.state
    using errcode = 'check_violation', constraint = 'only_permitted_transitions';
end $$;

-- The clock of all leases, delays and deadlines. Tests replace it.
create function retoma.now() returns timestamptz language sql stable as 'select clock_timestamp()';

-- # Tenants

create table retoma.tenants (
  id int generated always as identity primary key,
  name text not null unique,
  created_at timestamptz not null default now()
);

-- What an application stores about a tenant.
create table retoma.profiles (
  app text not null,
  tenant int not null references retoma.tenants,
  value json not null,
  revision int not null,
  created_at timestamptz not null,
  changed_at timestamptz not null,
  primary key (app, tenant)
);

-- What an application has learned for a tenant, found by full-text search.
create table retoma.tenant_facts (
  app text not null,
  tenant int not null,
  language text not null,
  text text not null,
  digest bytea not null,
  source json not null,
  confidence real not null,
  search tsvector not null,
  run uuid not null,                       -- the first run that reported it
  created_at timestamptz not null,
  primary key (app, tenant, language, digest),
  constraint confidence_is_between_0_and_1 check (confidence between 0 and 1)
);

create index tenant_facts_by_word on retoma.tenant_facts using gin (search);

-- # Pipelines

-- An immutable snapshot of a pipeline's graph, stored when it is first used.
create table retoma.versions (
  id int generated always as identity primary key,
  pipeline text not null,
  digest text not null,
  graph json not null,
  sinks int not null,
  created_at timestamptz not null default now(),
  stuck_after interval not null default '5 minutes',  -- without progress
  resumes int not null default 3,                     -- automatic resumes without progress
  unique (pipeline, digest)
);

create table retoma.steps (
  version int not null references retoma.versions,
  step text collate "C" not null,
  position int not null,                   -- in the order of definition
  queue text collate "C" not null,
  head_start bigint not null,              -- microseconds by which its priority puts it ahead
  dependency_count int not null,           -- dependencies that must be final before it can run
  each boolean not null,
  source text collate "C",                 -- of an `each` step: the step whose result lists its items
  internal boolean not null,               -- added by the compiler, not written by a user
  created_on text not null,                -- what creates its jobs: the start of the run, the end of its only dependency, or the expansion of its items
  on_failure text not null,
  item_from text,                          -- the step whose jobs keep the item's value
  pool text collate "C",
  slots int not null default 1,
  timeout interval not null default '10 minutes',  -- of one attempt, as the application last declared it
  review json,                             -- the review policy, as the application last declared it; null if no person does this step
  opens_review boolean not null,           -- a job that becomes ready opens its review, and needs no worker before the decision
  primary key (version, step),
  constraint created_on_is_known check (created_on in ('start', 'dependency', 'expansion')),
  constraint on_failure_is_known check (on_failure in ('stop', 'continue', 'review'))
);

-- What the end of a step triggers. Columns of the target are copied here, so finishing a job reads one table.
create table retoma.edges (
  version int not null references retoma.versions,
  from_step text collate "C" not null,
  to_step text collate "C" not null,       -- '' is the run itself
  edge_kind text not null,
  via text collate "C" not null default '', -- the `each` step whose items this edge represents until they exist
  same_item boolean not null,              -- the target's job is for the same item; otherwise it is for no item
  optional boolean not null,               -- the target can run without this result
  self_contained boolean not null,         -- the target reads only this result and the run's input
  queue text collate "C" not null,
  head_start bigint not null,              -- the target's, minus that of the step that ended
  dependency_count int not null,
  pool text collate "C",                   -- the target's
  opens_review boolean not null,           -- the target does
  primary key (version, from_step, to_step, edge_kind, via),
  constraint edge_kind_is_known check (edge_kind in ('create', 'count', 'share', 'expand', 'end'))
);

-- Which results the parameters of a step read, in the order of its parameters.
create table retoma.reads (
  version int not null references retoma.versions,
  step text collate "C" not null,
  position int not null,
  from_step text collate "C" not null,
  what text not null,
  primary key (version, step, position),
  constraint what_is_known check (what in ('result', 'result of the item', 'results of all items'))
);

-- # Workers and servers

-- One row per worker process. Its id is new at each process start and is never reused.
create table retoma.workers (
  id int generated always as identity primary key,
  name text not null,
  queues text[] not null,
  concurrency int not null,
  started_at timestamptz not null,
  heartbeat_at timestamptz not null,
  ended_at timestamptz,
  heartbeat_timeout interval,              -- its own: a process with a shorter one must not declare it dead
  pipelines text[],                        -- that its application defines; null: it may serve any
  allow_hosts text[]                       -- private hosts that it may call, as in RETOMA_ALLOW_HOSTS; null: not known
) with (fillfactor = 50);

create index alive_workers on retoma.workers (id) where ended_at is null;

-- The last call of each connection of a worker. A lost answer is found by its call number. The links of a dead worker are
-- deleted, so it can claim nothing more.
create table retoma.worker_links (
  worker int not null references retoma.workers,
  link int not null,
  call_number bigint not null,
  -- Changes with every thousandth call: while a transaction stays open, all versions of a row under one key are read again.
  call_block bigint not null default 0,
  claim_from_rank bigint,                  -- below this rank nothing was found
  rescan_at timestamptz,                   -- when to look below that rank again; null: in every call
  primary key (worker, link, call_block)
) with (fillfactor = 50);

create table retoma.servers (
  id uuid primary key,
  heartbeat_at timestamptz not null,
  allow_hosts text[] not null,             -- names, addresses or networks, as in RETOMA_ALLOW_HOSTS
  public_url text                          -- null if RETOMA_PUBLIC_URL is not set
);

-- # Runs

create table retoma.runs (
  id uuid primary key,
  tenant int not null,
  version int not null,
  state retoma.run_state not null default 'running',
  revision int not null default 1,
  open_sinks int not null,                 -- jobs without dependents that are not final
  has_errors boolean not null default false,
  final_state retoma.run_state,            -- set once the run is stopping: nothing new starts
  input json not null,
  created_at timestamptz not null,
  run_at timestamptz not null,
  ended_at timestamptz,
  watch_at timestamptz not null default 'infinity',  -- when to check whether it progresses
  resumes int,                             -- automatic resumes, instead of its version's
  deadline interval,                       -- after its start, as the caller asked
  deadline_at timestamptz,                 -- when it fails if it has not ended
  retries int,                             -- the most retries of each job, whatever its step allows
  forked_from uuid,                        -- its jobs of revision 1 are copies of that run's
  title text                               -- what people call it, as its pipeline made it of the input
) with (fillfactor = 70);

create index open_runs on retoma.runs (id) where ended_at is null;
create index open_runs_by_watch_at on retoma.runs (watch_at) where ended_at is null;
create index ended_runs_not_completed on retoma.runs (id) where ended_at is not null and state <> 'completed';
create index runs_by_tenant on retoma.runs (tenant, id);
create index runs_by_version on retoma.runs (version, id);

-- The idempotency keys of starts. Separate from runs, so keys outlive them.
create table retoma.start_keys (
  tenant int not null,
  pipeline text not null,
  key text not null,
  run uuid not null,
  digest bytea not null,
  created_at timestamptz not null,
  primary key (tenant, pipeline, key)
);

-- The recorded answer of each action on a run or a review, by its idempotency key.
create table retoma.action_keys (
  subject uuid not null,
  key text not null,
  digest text not null,                    -- of the whole request
  answer jsonb not null,
  created_at timestamptz not null,
  primary key (subject, key)
);

-- Open runs that do not progress although they should, and those that were resumed since. The row is deleted when the run
-- progresses.
create table retoma.stuck_runs (
  run uuid primary key,
  since timestamptz not null,
  cause text not null,
  data json not null,
  last_progress_event bigint not null,
  resumes int not null default 0,          -- since that event
  resumed_at timestamptz                   -- null: it is stuck now
);

-- # Jobs

create table retoma.jobs (
  run uuid not null,
  rank bigint not null,                    -- the claim order: the run's start minus its head start, in microseconds
  version int not null,
  tenant int not null,
  revision int not null,
  waiting_on int not null default 0,       -- dependencies that are not final
  worker int,                              -- null: unclaimed; 0: parked, or ended without a worker
  fence int not null default 0,
  position int not null default 0,         -- of its item in the fan-out
  spent_ms int not null default 0,         -- in earlier attempts and the delays between them
  attempt int not null default 0,
  failures int not null default 0,         -- failed attempts that were followed by another
  child_crashes int not null default 0,    -- of those, deaths of the child process that ran it; the third quarantines it
  worker_deaths int not null default 0,    -- workers that died while they ran it
  state retoma.job_state not null,
  stopping boolean not null default false, -- its run is stopping: its end starts nothing
  review_due boolean not null default false, -- when it becomes ready, its review opens
  step text collate "C" not null,
  item text collate "C" not null default '',
  queue text collate "C" not null,
  created_at timestamptz not null,
  ready_at timestamptz,                    -- set while it is delayed
  started_at timestamptz,
  ended_at timestamptz,
  code text,                               -- why it has no result, or why it waits
  input json,                              -- the item's value
  output json,
  pool text collate "C",                   -- null once its external work has ended: the rest of its step needs no slot
  author text,                             -- the person who recorded this result, in place of a worker
  isolated_rerun boolean not null default false,  -- a person reran this step only: its end starts nothing
  primary key (run, step, item, revision)
) with (fillfactor = 50);

-- No index may contain a column that finishing a job writes: its updates must stay within the page (HOT).
create index jobs_ready_by_queue on retoma.jobs (queue, tenant, rank)
  where worker is null and waiting_on = 0 and ready_at is null and worker_deaths = 0 and pool is null;
-- A job whose worker died is claimed alone, so a job that kills its workers is identified.
create index jobs_suspect_by_queue on retoma.jobs (queue, rank)
  where worker is null and waiting_on = 0 and ready_at is null and worker_deaths > 0 and pool is null;
create index jobs_ready_by_pool on retoma.jobs (pool, tenant, rank, run, position)
  where worker is null and waiting_on = 0 and ready_at is null and pool is not null;
create index jobs_delayed on retoma.jobs (ready_at) where ready_at is not null;

-- Every job that a revision reruns. Its row of that revision is created once its dependencies have ended; until then its earlier
-- rows do not count. A job that is not a target keeps its previous result if its inputs are the same.
create table retoma.pending_reruns (
  run uuid not null,
  revision int not null,
  step text collate "C" not null,
  item text collate "C" not null,
  target boolean not null default true,
  feedback json,                           -- what a person wrote about it
  reused_from int,                         -- the revision whose result it kept
  primary key (run, revision, step, item)
);

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
  started_at timestamptz,                  -- of an attempt without a result
  retry_at timestamptz,                    -- when the next attempt may start, if it is delayed
  constraint kind_is_known check
    (kind in ('start', 'result', 'failure', 'retry', 'review', 'action', 'end', 'stuck', 'resume', 'orphan'))
);

create index events_by_run on retoma.events (run, id);
create index events_by_id on retoma.events (id);
create index end_events_by_id on retoma.events (id) where kind = 'end';

create function retoma.refuse_event_change() returns trigger language plpgsql as $$
begin
  raise exception 'events are immutable' using errcode = 'check_violation';
end $$;

create trigger events_are_append_only
  before update on retoma.events for each statement
  execute function retoma.refuse_event_change();

-- The key of a job's row.
create type retoma.job_key as (run uuid, step text, item text, revision int);

-- An action of a person on a run that was locked for it. It is over if the tenant has no such run, or if an earlier call under
-- the same key had an answer.
create type retoma.begun_action as (run retoma.runs, at timestamptz, is_over boolean, answer jsonb);

-- One edge of one job that has ended.
create type retoma.edge_event as (
  run uuid, version int, tenant int, revision int, rank bigint, position int, item text, from_step text,
  missing text,   -- null: there is a result; otherwise why there is none
  outcome int,    -- the index of the outcome in the call
  items int,      -- the number of items in the job's result, if it is the source of a fan-out
  to_step text, edge_kind text, via text, same_item boolean, optional boolean, self_contained boolean,
  queue text, head_start bigint, dependency_count int, pool text, opens_review boolean
);

-- A job that was created already claimed by the worker that recorded its dependency's result.
create type retoma.kept_job as (run uuid, step text, item text, revision int, version int, tenant int);

-- A row of the answer to a worker's call. `claimed` and `kept`: a job with everything that its worker needs.
create type retoma.claimed_job as (
  what text,
  rejected int,         -- of `refused`: outcomes of jobs that the worker no longer held
  next_claim_ms int,    -- of `later`: until a pool's rate allows the next job
  run uuid, step text, item text, revision int, fence int, attempt int, failures int, child_crashes int, worker_deaths int, spent_ms int,
  version int, tenant int, run_retries int, run_input json, item_value json, results json[]
);

-- # Pools

-- The limits of a pool, which people can change, and the state that claims update.
create table retoma.pools (
  name text collate "C" primary key,
  declared json not null,                  -- the limits as the application last declared them
  capacity int not null,
  rate double precision,                   -- jobs that may start per second
  burst int not null default 1,
  tokens double precision not null,        -- of the rate, at `tokens_at`
  tokens_at timestamptz not null,
  paused_until timestamptz,                -- its provider answered "too many requests"
  last_tenant int not null default 0,      -- the tenant that was served last
  -- The next job in order, if it does not fit: free slots are reserved for it.
  reserved_job retoma.job_key,
  reserved_at timestamptz,
  reserved_seen_at timestamptz,            -- by a worker that could claim it
  -- The circuit breaker: `failures` of the provider in a row. From the fifth on nothing starts until `open_until`, then one job
  -- at a time until one succeeds.
  failures int not null default 0,
  open_until timestamptz,
  probed_at timestamptz,                   -- when the job started that tests the provider
  trouble text,
  per_tenant int,                          -- the most slots that one tenant may hold
  constraint capacity_is_not_negative check (capacity >= 0),
  constraint rate_is_above_zero check (rate > 0),
  constraint per_tenant_is_above_zero check (per_tenant > 0)
) with (fillfactor = 50);

-- The holders of slots: every job with a pool that is running or parked, and no other.
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

create index holdings_by_pool on retoma.holdings (pool) include (slots);

-- # External work

-- Side effects of a job, recorded by name so that a retry does not repeat them.
create table retoma.effects (
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  name text collate "C" not null,
  version int not null,
  fence int not null,                      -- of the lease that may record how it ended
  begun_at timestamptz not null,
  done_at timestamptz,
  value json,
  find text,                               -- the location of the function that returns its value, if it happened
  find_key text,                           -- the argument of that function
  cancel text,                             -- the location of the function that ends what it started
  request json,                            -- if it submits external work: how that is polled and cancelled
  -- Its job ended without a result: a worker looks for it, cancels what it started, or leaves it to a person as an orphan.
  abandoned_at timestamptz,
  next_at timestamptz,                     -- when to look for it; null once it is resolved or orphaned
  looks int not null default 0,            -- the number of the last look; the result of an earlier one is refused
  failed_looks int not null default 0,     -- in a row
  looking_worker int,                      -- the worker that looks for it now
  worker_deaths int not null default 0,    -- workers in a row that died while they looked for it
  orphaned_at timestamptz,                 -- when it was left to a person
  orphan_logged boolean not null default false, -- whether a worker has logged that
  error json,                              -- of the last look
  resolution text,                         -- what became of it
  resolved_at timestamptz,
  resolved_by text,                        -- the person who resolved it
  primary key (run, step, item, revision, name),
  constraint done_effect_has_a_value check ((done_at is null) = (value is null)),
  constraint resolution_is_known check
    (resolution in ('not_submitted', 'done', 'cancelled', 'external_work', 'nothing_found', 'cancelled_by_hand')),
  constraint only_an_orphan_is_resolved_by_a_person check (resolved_by is null or orphaned_at is not null),
  constraint resolved_at_is_set_when_resolved check ((resolution is null) = (resolved_at is null)),
  constraint sought_effect_is_open check (next_at is null or abandoned_at is not null and orphaned_at is null and resolution is null)
);

create index effects_due on retoma.effects (next_at) where next_at is not null;
create index effects_by_looking_worker on retoma.effects (looking_worker) where looking_worker is not null;
create index orphaned_effects on retoma.effects (version) where orphaned_at is not null and resolved_at is null;
create index unlogged_orphans on retoma.effects (orphaned_at) where orphaned_at is not null and not orphan_logged;

-- Work that a provider does while its job is parked.
create table retoma.external_work (
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  version int not null,
  external_id json not null,
  poll text,                               -- the location of the function that polls it
  cancel text,
  poll_interval interval not null,
  queue_timeout interval,                  -- how long it may wait at the provider, run there, and both
  run_timeout interval,
  total_timeout interval not null,
  state text not null default 'queued',
  polls int not null default 0,            -- the number of the last poll; the result of an earlier one is refused
  failed_polls int not null default 0,     -- in a row
  next_at timestamptz not null,            -- when to poll it
  parked_at timestamptz not null,
  running_at timestamptz,
  stopping_at timestamptz,                 -- when its cancellation was first requested
  ended_at timestamptz,
  progress real,
  result json,
  error json,
  started_at timestamptz,                  -- when the attempt started that submitted it: its job starts again when it has ended
  polling_worker int,                      -- the worker that polls it now
  worker_deaths int not null default 0,    -- workers in a row that died while they polled it
  primary key (run, step, item, revision),
  constraint state_is_known check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'lost')),
  constraint ended_at_is_set_when_final check ((state in ('succeeded', 'failed', 'cancelled', 'lost')) = (ended_at is not null))
) with (fillfactor = 70);

create index external_work_due on retoma.external_work (next_at) where ended_at is null;
create index external_work_by_polling_worker on retoma.external_work (polling_worker) where polling_worker is not null;

-- One-time addresses that a provider calls when something happened. Only the hash of the token is stored.
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

create index callbacks_by_job on retoma.callbacks (run, step, item, revision);

-- # Reviews

-- A job that waits for a person. It is parked, and holds neither a worker nor a slot.
create table retoma.reviews (
  id uuid primary key default gen_random_uuid(),
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  version int not null,
  tenant int not null,
  planned boolean not null,                -- by its pipeline; otherwise a step asked for help
  state retoma.review_state not null default 'open',
  reason json,                             -- why a step asked: code, message, and the result it would return
  opened_at timestamptz not null,
  due_at timestamptz,
  remind_at timestamptz,
  escalate_at timestamptz,
  expires_at timestamptz,
  assignee text,
  claimed_by text,                         -- who is reviewing it, until then
  claimed_until timestamptz,
  -- The decision.
  decided_by text,
  via text,
  decided_at timestamptz,
  effective_at timestamptz,                -- until then it can be undone
  applied_at timestamptz,
  decision_key text,
  value json,                              -- the approved value, if it is not the subject unchanged
  notes text,
  feedback json,
  back_to text collate "C",
  back_items text[],
  next_at timestamptz,                     -- when maintenance should process it
  ended_at timestamptz,
  unique (run, step, item, revision),
  constraint ended_at_is_set_when_final check ((state = 'open') = (ended_at is null)),
  constraint a_decision_has_an_author check (state not in ('approved', 'sent_back', 'rejected') or decided_by is not null)
) with (fillfactor = 70);

-- Which runs wait for people. Small, because most reviews have ended.
create index unapplied_reviews_by_run on retoma.reviews (run) where applied_at is null;
create index open_reviews_by_age on retoma.reviews (opened_at, id) where state = 'open';
create index reviews_by_tenant on retoma.reviews (tenant, opened_at);
create index reviews_by_next_at on retoma.reviews (next_at) where next_at is not null;

-- # Webhooks

-- What signs the webhooks of a tenant to a host. The previous secret signs too until its time is over.
create table retoma.webhook_secrets (
  tenant int not null,
  host text collate "C" not null,
  secret text not null,
  previous_secret text,
  previous_secret_until timestamptz,
  primary key (tenant, host)
);

-- A URL of a tenant. `failures` are in a row, since `failing_since`; a success resets both.
create table retoma.endpoints (
  id int generated always as identity primary key,
  tenant int not null,
  host text collate "C" not null,          -- scheme, host and port, without parts that may be secret
  url text collate "C" not null,
  created_at timestamptz not null,
  failures int not null default 0,
  failing_since timestamptz,
  open_until timestamptz,                  -- until then nothing is sent
  disabled_at timestamptz,
  disabled_because text,
  -- The events of all runs of its tenant that it is subscribed to; null if only single runs name it. Tenant -1 subscribes to the
  -- runs of all tenants.
  events text[],
  unique (tenant, url)
) with (fillfactor = 70);

create index subscribed_endpoints_by_tenant on retoma.endpoints (tenant) where events is not null;

-- Which events of a run are sent to which endpoint.
create table retoma.run_webhooks (
  run uuid not null,
  endpoint int not null,
  events text[] not null,
  schedule text not null,
  retries int,
  primary key (run, endpoint),
  constraint schedule_is_known check (schedule in ('standard', 'short'))
);

-- One event to be sent to one endpoint. Its id is the `webhook-id`.
create table retoma.deliveries (
  id uuid primary key default gen_random_uuid(),
  number bigint generated always as identity unique,
  run uuid not null,
  endpoint int not null,
  seq int not null,                        -- among the deliveries of this run to this endpoint
  tenant int not null,
  pipeline text collate "C" not null,
  host text collate "C" not null,
  event text not null,
  schedule text not null,
  retries int,
  state retoma.delivery_state not null default 'due',
  attempt int not null default 0,          -- incremented by each claim; the holder of an older one may not write
  schedule_attempt int not null default 0, -- in the retry schedule, which a redeliver restarts
  next_at timestamptz not null,            -- due: when to send; sending: when another sender may claim it
  body text,                               -- set before the first attempt, and then never changed
  created_at timestamptz not null,
  ended_at timestamptz,
  data json,                               -- what the event says besides its run: which review, why it is stuck
  constraint one_delivery_per_sequence_number unique (run, endpoint, seq),
  constraint ended_at_is_set_when_final check ((state in ('delivered', 'dead')) = (ended_at is not null))
) with (fillfactor = 70);

create index deliveries_open_by_host on retoma.deliveries (host, next_at) where ended_at is null;
create index deliveries_by_endpoint on retoma.deliveries (endpoint, number);
create index dead_deliveries_by_pipeline on retoma.deliveries (pipeline) where state = 'dead';

create table retoma.delivery_attempts (
  delivery uuid not null,
  attempt int not null,
  at timestamptz not null,
  ms int,                                  -- null: the outcome is unknown, because its sender died
  status int,
  error text,
  answer text,
  primary key (delivery, attempt)
);

-- Events that were written where their run must not be locked. The next statement that locks the run turns them into deliveries.
create table retoma.pending_webhook_events (
  id bigint generated always as identity primary key,
  run uuid not null,
  event text not null,
  data json,
  at timestamptz not null
);

create index pending_webhook_events_by_run on retoma.pending_webhook_events (run, id);

-- # Charges

-- What a provider costs, in millionths of a US dollar. A change is a new version; recorded charges keep their version.
create table retoma.prices (
  provider text collate "C" not null,
  resource text collate "C" not null,          -- a model, a voice, a kind of machine
  version int not null,
  since timestamptz not null,
  tokens_in bigint not null default 0,     -- for a million tokens
  tokens_out bigint not null default 0,
  unit bigint not null default 0,          -- for one unit
  primary key (provider, resource, version),
  constraint prices_are_not_negative check (tokens_in >= 0 and tokens_out >= 0 and unit >= 0)
);

-- What one attempt has used, whatever its outcome.
create table retoma.charges (
  id uuid primary key,
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  attempt int not null,
  tenant int not null,
  at timestamptz not null,
  provider text collate "C" not null,
  resource text collate "C" not null,
  tokens_in bigint not null default 0,
  tokens_out bigint not null default 0,
  units double precision not null default 0,
  micros bigint,                           -- null: the cost is unknown
  price int,                               -- the version of the price; null if the provider reported the cost
  constraint amounts_are_not_negative check (tokens_in >= 0 and tokens_out >= 0 and units >= 0)
);

create index charges_by_run on retoma.charges (run, id);
create index charges_by_tenant on retoma.charges (tenant, at);

-- # Metrics

-- How often something ended, and how long it took. A row counts durations of at most `bucket` seconds that exceed the next
-- smaller bucket.
create table retoma.metric_counters (
  pipeline text collate "C" not null,
  what text not null,
  outcome text collate "C" not null default '',
  bucket double precision not null default 'infinity',
  count bigint not null,
  seconds double precision not null default 0,
  primary key (pipeline, what, outcome, bucket),
  constraint what_is_known check (what in ('run_end', 'run_wait', 'run_duration', 'run_review', 'delivery'))
) with (fillfactor = 50);

-- Which events are counted: those up to `through`. Those up to `next` follow once the transactions in `writers` have ended,
-- because only they could still commit an event with a lower id.
create table retoma.metric_cursor (
  through bigint not null,
  next bigint not null,
  writers text[] not null
);

insert into retoma.metric_cursor (through, next, writers) values (0, 0, '{}');

-- Ended deliveries that are not counted yet. A redelivered delivery ends again.
create table retoma.delivery_ends (
  pipeline text collate "C" not null,
  state retoma.delivery_state not null
);

create function retoma.record_delivery_end() returns trigger language plpgsql as $$
begin
  insert into retoma.delivery_ends (pipeline, state) values (new.pipeline, new.state);
  return null;
end $$;

create trigger delivery_ends_are_recorded
  after insert or update of state on retoma.deliveries for each row
  when (new.state in ('delivered', 'dead'))
  execute function retoma.record_delivery_end();

-- # Access

-- API keys. Only their digests are stored.
create table retoma.api_keys (
  id int generated always as identity primary key,
  name text not null,
  tenant int references retoma.tenants,    -- null: all tenants
  scopes text[] not null,
  digest bytea not null unique,
  hint text not null,                      -- the first characters, so people can tell keys apart
  key_slot smallint not null,              -- which of the two live keys of its name it is
  created_at timestamptz not null,
  expires_at timestamptz,
  used_at timestamptz,                     -- written at most once a minute
  revoked_at timestamptz,
  constraint key_slot_is_one_or_two check (key_slot in (1, 2)),
  constraint scopes_are_known check (scopes <@ array[
    'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'reviews:write', 'admin']),
  constraint cross_tenant_scopes_need_all_tenants check
    (tenant is null or not scopes && array['pools:write', 'metrics:read', 'admin'])
);

create unique index two_live_keys_per_name on retoma.api_keys (tenant, name, key_slot) nulls not distinct
  where revoked_at is null;

-- Sessions of people who logged in to the pages. Only the digests of their tokens are stored.
create table retoma.sessions (
  digest bytea primary key,
  password bytea not null,                 -- the digest of the password's hash: changing the password ends all sessions
  created_at timestamptz not null,
  used_at timestamptz not null             -- written at most once a minute
);

create table retoma.signing_keys (
  purpose text collate "C" primary key,
  secret text not null
);

-- # Transitions

do $$
declare
  v_table text;
  v_entity text;
  v_permitted text;
begin
  for v_table, v_entity in values ('jobs', 'job'), ('runs', 'run'), ('reviews', 'review'), ('deliveries', 'delivery') loop
    select string_agg(format('when %L then new.state in (%s)', from_state, to_states), ' ') into v_permitted
      from (select from_state, string_agg(quote_literal(to_state), ', ') as to_states
              from retoma.transitions where entity = v_entity group by from_state) t;
    execute format(
      'create trigger only_permitted_transitions after update of state on retoma.%I for each row
         when (old.state <> new.state and not case old.state %s else false end)
         execute function retoma.refuse_transition(%L)', v_table, v_permitted, v_entity);
  end loop;
  -- As literals: a call of `is_final` would be inlined again by every statement.
  execute format('alter table retoma.runs add constraint ended_at_is_set_when_final check ((state in (%s)) = (ended_at is not null))',
                 (select string_agg(quote_literal(s), ', ') from unnest(enum_range(null::retoma.run_state)) s where retoma.is_final(s)));
end $$;

-- A decision can be undone, or be superseded by another action, until it takes effect.
create trigger applied_decisions_are_final
  after update of state on retoma.reviews for each row
  when (old.state <> new.state and old.applied_at is not null)
  execute function retoma.refuse_transition('review');
