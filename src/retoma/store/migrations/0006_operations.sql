-- Adds what operators use: stacks that workers report on request, actions on many runs, jobs or deliveries, and samples of queues.
-- Existing data does not change.

-- A person's request for the stacks of the jobs that a worker runs, and its answer. The row is deleted when the worker ends.
create table retoma.worker_stacks (
  worker int primary key references retoma.workers,
  requested_at timestamptz not null,
  requested_by text not null,
  answered_at timestamptz,                 -- null: the worker answers with its next heartbeat
  jobs json,
  constraint an_answer_has_jobs check ((answered_at is null) = (jobs is null))
);

-- A person's action on many runs, jobs or deliveries. Its targets were chosen when it was confirmed.
create table retoma.bulk_actions (
  id uuid primary key,
  kind text not null,
  tenant int,                              -- null: of all tenants
  filter json not null,
  requested_by text not null,
  created_at timestamptz not null,
  total int not null,
  done int not null default 0,
  skipped int not null default 0,          -- targets that have changed since, so the action no longer applies
  aborted_at timestamptz,
  aborted_by text,
  ended_at timestamptz,
  constraint kind_is_known check (kind in ('cancel_runs', 'rerun_failed', 'redeliver', 'retry_jobs')),
  constraint an_abort_has_an_author check ((aborted_at is null) = (aborted_by is null)),
  constraint aborted_action_has_ended check (aborted_at is null or ended_at is not null)
);

create index open_bulk_actions on retoma.bulk_actions (created_at) where ended_at is null;
create index bulk_actions_by_age on retoma.bulk_actions (created_at);

-- What a bulk action has still to do. A row is deleted by the transaction that acts on it.
create table retoma.bulk_targets (
  action uuid not null references retoma.bulk_actions,
  number int not null,
  subject uuid not null,                   -- a run or a delivery
  step text collate "C",                   -- of a job
  item text collate "C",
  revision int,
  primary key (action, number)
);

-- How many jobs each queue had at the start of each minute of the last day.
create table retoma.queue_samples (
  at timestamptz not null,
  queue text collate "C" not null,
  ready int not null,
  delayed int not null,
  running int not null,
  slots int not null,                      -- how many jobs its workers could run at once
  primary key (at, queue)
);
