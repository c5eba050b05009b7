-- Adds what applications know of tenants, and how often a run lets its jobs be retried.

create table retoma.profiles (
  app text not null,
  tenant int not null references retoma.tenants,
  value json not null,
  revision int not null,
  created_at timestamptz not null,
  changed_at timestamptz not null,
  primary key (app, tenant)
);

alter table retoma.runs add retries int;   -- at most so many of each job, whatever its step says

-- They take one more fact now.
drop function if exists retoma.start_runs(
  uuid[], int[], int[], json[], text[], bytea[], timestamptz[], bigint[], json[], int[], interval[], boolean);
drop function if exists retoma.start_new(timestamptz, uuid[], int[], int[], json[], timestamptz[], bigint[], int[], interval[]);
drop function if exists retoma.start_carefully(
  timestamptz, uuid[], int[], int[], json[], text[], bytea[], timestamptz[], bigint[], int[], interval[]);
