-- Adds budgets: limits of what runs and tenants may spend, what was spent in each quarter of an hour, and what running attempts
-- have reserved. Existing charges are summed once, while no charge can be written. Nothing is limited until a budget is set.

alter table retoma.tenants
  add column time_zone text not null default 'UTC',  -- in which its days and months begin
  add column currency text,                -- what amounts are also shown in, such as BRL
  add column currency_rate numeric,        -- units of it for a US dollar, as somebody entered it
  add column currency_rate_date date;

alter table retoma.tenants
  add constraint a_currency_has_a_rate_and_a_date
    check ((currency is null) = (currency_rate is null) and (currency is null) = (currency_rate_date is null)) not valid,
  add constraint currency_rate_is_above_zero check (currency_rate > 0) not valid;

-- The most that one run, or all runs of a day or a month, may cost. Amounts are millionths of a US dollar.
create table retoma.budgets (
  id int generated always as identity primary key,
  tenant int not null references retoma.tenants,
  pipeline text collate "C",               -- null: all pipelines of the tenant
  period text not null,
  micros bigint not null,
  action text not null,
  warn_at double precision not null,       -- the share of it from which people are warned
  created_at timestamptz not null,
  changed_at timestamptz not null,
  changed_by text not null,
  constraint one_budget_per_scope_and_period unique nulls not distinct (tenant, pipeline, period),
  constraint period_is_known check (period in ('run', 'day', 'month')),
  constraint action_is_known check (action in ('notify', 'review')),
  constraint limit_is_not_negative check (micros >= 0),
  constraint warn_at_is_a_share check (warn_at > 0 and warn_at <= 1)
);

-- That people were told that a budget is used up to a share. Once for a period or a run, and again if the limit changes.
create table retoma.budget_warnings (
  budget int not null,
  starts_at timestamptz not null,          -- of the period; of a run, its start
  run uuid,                                -- of a budget per run
  micros bigint not null,                  -- the limit then
  level text not null,
  spent bigint not null,
  warned_at timestamptz not null,
  constraint one_warning_per_period_and_level unique nulls not distinct (budget, starts_at, run, micros, level),
  constraint level_is_known check (level in ('near', 'reached'))
);

-- What an attempt may still spend. It counts as long as the attempt runs or its external work does (`is_reserved`); its row may
-- stay a little longer.
create table retoma.budget_reservations (
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  fence int not null,
  tenant int not null,
  pipeline text collate "C" not null,
  micros bigint not null,
  reserved_at timestamptz not null,
  primary key (run, step, item, revision)
);

create index budget_reservations_by_tenant on retoma.budget_reservations (tenant);

-- The sums of the charges by quarter of an hour, in which the days of every time zone begin. Written only by the statement that
-- inserts the charges (`count_charges`).
create table retoma.charge_sums (
  tenant int not null,
  quarter timestamptz not null,
  pipeline text collate "C" not null,
  micros bigint not null,
  primary key (tenant, quarter, pipeline)
) with (fillfactor = 70);

-- Until this migration commits, no charge is written that the trigger would miss.
lock table retoma.charges in share row exclusive mode;

insert into retoma.charge_sums (tenant, quarter, pipeline, micros)
select c.tenant, date_bin('15 minutes', c.at, 'epoch'), coalesce(v.pipeline, ''), sum(c.micros)
  from retoma.charges c
  left join retoma.runs r on r.id = c.run
  left join retoma.versions v on v.id = r.version
 where c.micros > 0
 group by 1, 2, 3;

-- A job may wait for a person several times because of budgets, and once for another reason.
alter table retoma.reviews add column budget int;  -- the budget that the job would pass

alter table retoma.reviews drop constraint reviews_run_step_item_revision_key;
create unique index one_open_review_per_job on retoma.reviews (run, step, item, revision) where applied_at is null;
create unique index one_review_per_job on retoma.reviews (run, step, item, revision) where budget is null;
create index reviews_by_job on retoma.reviews (run, step, item, revision);
create index open_reviews_by_budget on retoma.reviews (budget) where budget is not null and state = 'open';

-- A key may set budgets.
alter table retoma.api_keys drop constraint scopes_are_known;
alter table retoma.api_keys add constraint scopes_are_known check (scopes <@ array[
  'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'reviews:write',
  'schedules:write', 'budgets:write', 'people:write', 'audit:read', 'admin']);
