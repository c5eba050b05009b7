-- name: allow_long_transaction
-- The server must not end the transaction while pg_dump starts.
select set_config('idle_in_transaction_session_timeout', '0', true);

-- name: export_snapshot
-- What pg_dump reads later is exactly what this transaction sees.
select pg_export_snapshot() as snapshot, retoma.now() as taken_at, current_setting('server_version') as server_version;

-- name: get_size
-- The space of the schema on the server, in bytes. A dump is compressed, and smaller.
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint as bytes
  from pg_class c
 where c.relnamespace = to_regnamespace('retoma') and c.relkind = 'r';

-- name: list_tables
select c.relname
  from pg_class c
 where c.relnamespace = to_regnamespace('retoma') and c.relkind = 'r'
 order by c.relname;

-- name: list_named_files
-- The digests of all files that inputs and results name.
select f.found[1] as digest
  from retoma.runs r, regexp_matches(r.input::text, '"file": ?"([0-9a-f]{64})"', 'g') as f (found)
 where position('"file"' in r.input::text) > 0
union
select f.found[1]
  from retoma.jobs j, regexp_matches(j.input::text, '"file": ?"([0-9a-f]{64})"', 'g') as f (found)
 where position('"file"' in j.input::text) > 0
union
select f.found[1]
  from retoma.jobs j, regexp_matches(j.output::text, '"file": ?"([0-9a-f]{64})"', 'g') as f (found)
 where position('"file"' in j.output::text) > 0;

-- name: list_kept_files
-- The digests of all files that file collection keeps because something names them, or because they were just stored.
select encode(n.digest, 'hex') as digest
  from retoma.file_names n
union
(select encode(f.digest, 'hex')
   from retoma.tenant_files f
 except
 select encode(u.digest, 'hex')
   from retoma.list_unnamed_files(array(select f.digest from retoma.tenant_files f), :grace) u);

-- name: has_file_collection
-- Not in a schema of 0.1.0rc1.
select to_regprocedure('retoma.lock_files(int, bytea[], interval)') is not null as found;

-- name: keep_files
-- Keep all files as if this session were naming them (`lock_files`). Waits for a deletion in progress.
select set_config('idle_session_timeout', '0', false), pg_advisory_lock_shared(retoma.file_lock(shard))
  from generate_series(0, 255) shard;

-- name: stop_keeping_files
select pg_advisory_unlock_all();

-- name: record_backup
insert into retoma.backups (id, taken_at, completed_at, bytes, files)
values (:id, :taken_at, retoma.now(), :bytes, :files)
returning id;

-- name: get_last_backup
select taken_at, retoma.now() - taken_at as age
  from retoma.backups
 order by taken_at desc
 limit 1;
