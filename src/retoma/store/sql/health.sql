-- name: get_server
-- What kind of server it is, whether commits are durable, and whether we are a superuser.
select current_setting('server_version') as version, pg_is_in_recovery() as is_standby,
       current_setting('fsync') = 'on' and current_setting('synchronous_commit') <> 'off' as is_durable,
       current_setting('is_superuser') = 'on' as is_superuser;

-- name: list_old_transactions
-- Transactions that have been open for longer than this: they block vacuum, and perhaps locks.
select pid, coalesce(usename, '') as "user", coalesce(application_name, '') as application, coalesce(state, '') as state,
       clock_timestamp() - xact_start as open_for
  from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend' and xact_start < clock_timestamp() - :age::interval
 order by xact_start;

-- name: count_ready_by_queue
-- Jobs that could be claimed now.
select queue, count(*) as jobs
  from (select queue from retoma.jobs j where retoma.is_claimable(j) and worker_deaths = 0 and pool is null
        union all
        select queue from retoma.jobs j where retoma.is_claimable(j) and worker_deaths > 0 and pool is null
        union all
        select queue from retoma.jobs j where retoma.is_claimable(j) and pool is not null) as ready
 group by queue
 order by queue;

-- name: list_undefined_steps
-- Steps that a worker has claimed and does not define.
select v.pipeline, j.step, count(*) as jobs
  from retoma.jobs j
  join retoma.versions v on v.id = j.version
 where j.ready_at is not null and j.code = 'UNDEFINED_STEP'
 group by v.pipeline, j.step
 order by v.pipeline, j.step;
