-- name: remove_expired_runs
select o_state as state, o_removed as removed
  from retoma.remove_expired_runs(:keep, :keep_failed, :limit, :jobs, :pause);

-- name: delete_old_rows
select retoma.delete_old_rows(:keep_keys, :keep_audit, :keep_inbound, :limit) as deleted;

-- name: list_rules
select r.pipeline, t.name as tenant, r.final_class, r.keep, r.set_by, r.set_at
  from retoma.retention_rules r
  left join retoma.tenants t on t.id = r.tenant
 order by r.pipeline nulls first, t.name nulls first, r.final_class;

-- name: list_declared
-- What pipelines declare, by their newest version.
select d.pipeline, d.retention as keep
  from (select distinct on (v.pipeline) v.pipeline, v.retention from retoma.versions v order by v.pipeline, v.id desc) d
 where d.retention is not null
 order by d.pipeline;

-- name: set_rule
-- Returns whether the rule is new or has changed.
insert into retoma.retention_rules as r (pipeline, tenant, final_class, keep, set_by, set_at)
values (:pipeline, :tenant, :final_class, :keep, :by, retoma.now())
    on conflict (pipeline, tenant, final_class) do update set keep = excluded.keep, set_by = excluded.set_by, set_at = excluded.set_at
 where r.keep is distinct from excluded.keep
returning true as changed;

-- name: remove_rule
delete from retoma.retention_rules
 where pipeline is not distinct from :pipeline::text and tenant is not distinct from :tenant::int and final_class = :final_class
returning true as removed;

-- name: preview
-- How many runs would be removed now, by pipeline and how they ended, and about how many bytes of the database they take, by a sample. The
-- row without a pipeline is of all runs, with the files that only these runs name. At most `limit` runs of each version are checked.
with recursive checked as materialized (
  select v.id as version, v.pipeline, e.run, e.is_expired
    from retoma.versions v, retoma.list_expired_runs(v.id, null, :limit, :keep, :keep_failed) e
), expired as materialized (
  select c.pipeline, retoma.final_class(r.state) as final_class, r.id as run, (r.parent).run as parent, r.ended_at
    from checked c
    join retoma.runs r on r.id = c.run
   where c.is_expired
), needed as (
  -- As `can_remove` decides, for all runs at once.
  select e.run
    from expired e
    left join retoma.list_needed_runs() n on n.run = e.run
    left join expired p on p.run = e.parent
   where n.run is not null or p.run is null and exists (select from retoma.runs r where r.id = e.parent)
   union
  select e.run
    from needed n
    join expired e on e.parent = n.run
), removable as materialized (
  -- `distinct`, because the planner expects billions of rows of the recursion otherwise.
  select e.* from expired e left join (select distinct run from needed) n on n.run = e.run where n.run is null
), sample as materialized (
  select retoma.measure_runs(s.runs) / cardinality(s.runs) as bytes
    from (select array(select run from removable order by md5(run::text) limit 200) as runs offset 0) s
   where cardinality(s.runs) > 0
), named as materialized (
  select distinct n.digest from removable e join retoma.file_names n on n.run = e.run
), kept as (
  select o.digest from named n join retoma.file_names o on o.digest = n.digest left join removable e on e.run = o.run where e.run is null
   union all
  select digest from retoma.list_files_named_by_people()
), files as materialized (
  select n.digest from named n left join kept k on k.digest = n.digest where k.digest is null
), file_sizes as (
  select retoma.find_file_size(f.digest) as size from (select digest from files order by digest limit 200) f
)
select e.pipeline, e.final_class, count(*) as runs, min(e.ended_at) as oldest_end,
       coalesce(count(*) * (select bytes from sample), 0)::bigint as bytes,
       (select count(*) from files) as files,
       coalesce((select count(*) from files) * (select avg(size) from file_sizes), 0)::bigint as file_bytes,
       (select coalesce(bool_and(c.runs < :limit), true) from (select count(*) as runs from checked group by version) c) as is_complete
  from removable e
 group by grouping sets ((e.pipeline, e.final_class), ())
 order by 1, 2;

-- name: hold_run
select retoma.hold_run(:run, :tenant, :by, :reason) as held;

-- name: release_run
delete from retoma.run_holds h
 using retoma.runs r
 where h.run = :run and r.id = h.run and (:tenant::int is null or r.tenant = :tenant)
returning true as released;

-- name: list_holds
select h.run, t.name as tenant, v.pipeline, r.title, h.held_by, h.held_at, h.reason
  from retoma.run_holds h
  join retoma.runs r on r.id = h.run
  join retoma.tenants t on t.id = r.tenant
  join retoma.versions v on v.id = r.version
 where (:run::uuid is null or h.run = :run) and (:tenants::int[] is null or r.tenant = any (:tenants))
 order by h.held_at desc, h.run
 limit :limit;

-- name: erase_run
select o_runs as runs, o_files as files from retoma.erase_run(:run, :tenant);

-- name: erase_runs_of_tenant
select o_runs as runs, o_files as files from retoma.erase_runs_of_tenant(:tenant, :limit);

-- name: find_tenant_obstacle
-- Why the runs of a tenant cannot be erased: one that is held, or one that has not ended.
select (select min(h.run::text)::uuid from retoma.run_holds h join retoma.runs r on r.id = h.run where r.tenant = :tenant) as held,
       (select min(r.id::text)::uuid from retoma.runs r where r.tenant = :tenant and r.ended_at is null) as open;

-- name: erase_tenant_rows
select retoma.erase_tenant_rows(:tenant), true as erased;

-- name: get_progress
select p.pass_ended_at, p.files_checked_at, p.indexed_at, p.removed_runs, p.removed_files, p.removed_file_bytes
  from retoma.retention_progress p;

-- name: list_removals
-- The last days on which runs were removed.
select r.day, t.name as tenant, r.pipeline, r.cause, r.runs, r.jobs, r.last_at
  from retoma.run_removals r
  join retoma.tenants t on t.id = r.tenant
 order by r.day desc, r.last_at desc, t.name, r.pipeline
 limit :limit;

-- name: list_table_sizes
-- What each table takes on disk, with its indexes, the largest first. The rows are those that the planner assumes.
select c.relname as "table", greatest(c.reltuples, 0)::bigint as rows, pg_table_size(c.oid) as table_bytes, pg_indexes_size(c.oid) as index_bytes
  from pg_class c
 where c.relnamespace = 'retoma'::regnamespace and c.relkind = 'r'
 order by pg_total_relation_size(c.oid) desc, c.relname;

-- name: index_files
select retoma.index_files(:limit) as is_complete;

-- name: claim_file_shard
select retoma.claim_file_shard(:pause) as shard;

-- name: list_unnamed_files
select encode(u.digest, 'hex') as digest
  from retoma.list_unnamed_files(array(select decode(g, 'hex') from unnest(:digests::text[]) g), :grace) u;

-- name: lock_files
select encode(u, 'hex') as digest
  from retoma.lock_files(:shard, array(select decode(g, 'hex') from unnest(:digests::text[]) g), :grace) u;

-- name: count_deleted_files
select retoma.count_deleted_files(array(select decode(g, 'hex') from unnest(:digests::text[]) g), :bytes, :grace), true as counted;
