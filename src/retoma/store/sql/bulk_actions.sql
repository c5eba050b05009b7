-- name: count_targets
-- How many targets an action would have.
select count(*)::int as targets
  from retoma.select_bulk_targets(:action_kind, :tenant, :filter::jsonb, :limit);

-- name: list_targets
-- The first targets that an action would have.
select t.subject, t.run, r.title as run_title, v.pipeline, n.name as tenant, t.step, t.item
  from retoma.select_bulk_targets(:action_kind, :tenant, :filter::jsonb, :limit) t
  join retoma.runs r on r.id = t.run
  join retoma.versions v on v.id = r.version
  join retoma.tenants n on n.id = r.tenant;

-- name: create_bulk_action
select retoma.create_bulk_action(:id, :kind, :tenant, :filter::jsonb, :by, :expected, :limit) as total;

-- name: list_bulk_actions
-- Newest first, or the one with this id.
select b.id, b.kind, t.name as tenant, b.filter::text as filter, b.requested_by, b.created_at, b.total, b.done, b.skipped,
       b.aborted_at, b.aborted_by, b.ended_at
  from retoma.bulk_actions b
  left join retoma.tenants t on t.id = b.tenant
 where (:id::uuid is null or b.id = :id)
   and (:tenants::int[] is null or b.tenant = any (:tenants)
        or b.tenant is null and (b.filter::jsonb -> 'tenants') <@ to_jsonb(:tenants))
 order by b.created_at desc, b.id
 limit :limit;

-- name: list_open_bulk_actions
-- The oldest of each tenant first, so the many actions of one tenant do not hold up those of others.
select b.id
  from (select a.id, a.created_at, row_number() over (partition by a.tenant order by a.created_at, a.id) as turn
          from retoma.bulk_actions a
         where a.ended_at is null) b
 order by b.turn, b.created_at
 limit :limit;

-- name: count_open_bulk_actions
-- How many actions of a tenant, or of all tenants (null), are in progress.
select count(*)::int as open
  from retoma.bulk_actions
 where ended_at is null and tenant is not distinct from :tenant::int;

-- name: advance_bulk_action
select retoma.advance_bulk_action(:id) as advanced;

-- name: abort_bulk_action
select retoma.abort_bulk_action(:id, :by) as aborted;

-- name: retry_job
-- Let a job that waits for its next attempt start now.
select retoma.retry_job(:run, :step, :item, n.revision, :tenant, :by) as released
  from (select j.revision
          from retoma.jobs j
         where j.run = :run and j.step = :step and j.item = :item and (:tenant::int is null or j.tenant = :tenant)
         order by j.revision desc
         limit 1) n;

-- name: list_retries
-- The jobs that wait for their next attempt, the next one first.
select j.run, r.title as run_title, v.pipeline, t.name as tenant, j.step, j.item, j.revision, j.attempt, j.failures, j.code, j.queue, j.ready_at
  from retoma.jobs j
  join retoma.versions v on v.id = j.version
  join retoma.runs r on r.id = j.run
  join retoma.tenants t on t.id = j.tenant
 where j.ready_at is not null and retoma.waits_for_retry(j)
   and (:tenants::int[] is null or j.tenant = any (:tenants))
   and (:pipelines::text[] is null or v.pipeline = any (:pipelines))
   and (:queue::text is null or j.queue = :queue)
   and (:step::text is null or j.step = :step)
   and (:code::text is null or j.code = :code)
 order by j.ready_at, j.run, j.step, j.item
 limit :limit;
