-- name: has_schema
-- Whether there is a schema of Retoma with any table, even of an unfinished restore.
select exists (select from pg_class c where c.relnamespace = to_regnamespace('retoma') and c.relkind = 'r') as found;

-- name: describe_content
-- What a restore would replace.
select (select count(*) from retoma.runs) as runs,
       (select count(*) from retoma.runs where ended_at is null) as open_runs,
       (select count(*) from retoma.reviews where state = 'open') as open_reviews,
       (select max(created_at) from retoma.runs) as last_start;

-- name: end_unfinished_restore
drop table retoma.unfinished_restore;

-- name: begin_restored_state
select jobs, held, dropped
  from retoma.begin_restored_state(:backup, :taken_at, :outbox);

-- name: get_last_restore
select epoch, taken_at, restored_at
  from retoma.restores
 order by epoch desc
 limit 1;

-- name: count_held
select webhooks, notifications
  from retoma.count_held();

-- name: release_held
select nullif(retoma.release_held(), 0) as released;

-- name: drop_held
select nullif(retoma.drop_held(), 0) as dropped;

-- name: analyze
analyze;
