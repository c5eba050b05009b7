-- name: begin_effect
-- Record that an effect starts. Returns whether it started before.
select o_state as state, o_value::text as value
  from retoma.begin_effect(:worker, :run, :step, :item, :revision, :fence, :name, :find, :find_key, :cancel, :request, :token_hash, :token_lives);

-- name: end_effect
select retoma.end_effect(:run, :step, :item, :revision, :fence, :name, :value) as recorded;

-- name: undo_effect
-- Remove an effect that is known not to have happened. If a worker looks for it, that look finds out.
delete from retoma.effects
 where run = :run and step = :step and item = :item and revision = :revision and name = :name
   and fence = :fence and done_at is null and next_at is null and resolution is null;

-- name: claim_looks
select run, step, item, revision, name, version, looks, value::text as value, find, find_key, cancel, request is not null as is_submission,
       worker_deaths
  from retoma.claim_looks(:versions, :limit, :lease, :worker, :suspect);

-- name: record_look
select retoma.record_look(:run, :step, :item, :revision, :name, :looks, :value, :resolution, :error) as taken;

-- name: claim_unlogged_orphans
-- The new orphans, each for one caller.
update retoma.effects e
   set orphan_logged = true
 where e.ctid = any (array(
   select d.ctid from retoma.effects d
    where d.orphaned_at is not null and not d.orphan_logged
    order by d.orphaned_at limit :limit for update skip locked))
returning e.run, e.step, e.item, e.name as effect;

-- name: list_orphans
-- The effects that only a person can resolve, in order: of one run, resolved ones included, or the unresolved ones of all runs.
select e.run, r.title as run_title, v.pipeline, t.name as tenant, e.step, e.item, e.revision, e.name as effect, e.begun_at, e.orphaned_at,
       e.value::text as value, e.find_key as key, e.error::text as error, e.resolution, e.resolved_at, e.resolved_by
  from retoma.effects e
  join retoma.runs r on r.id = e.run
  join retoma.versions v on v.id = r.version
  join retoma.tenants t on t.id = r.tenant
 where e.orphaned_at is not null
   and (e.run = :run or :run::uuid is null and e.resolved_at is null)
   and (:tenants::int[] is null or r.tenant = any (:tenants))
   and (:after_at::timestamptz is null
        or (e.orphaned_at, e.run, e.step, e.item, e.revision, e.name)
         > (:after_at, :after_run::uuid, :after_step::text, :after_item::text, :after_revision::int, :after_name::text))
 order by e.orphaned_at, e.run, e.step, e.item, e.revision, e.name
 limit :limit;

-- name: resolve_orphan
select e.run, r.title as run_title, v.pipeline, t.name as tenant, e.step, e.item, e.revision, e.name as effect, e.begun_at, e.orphaned_at,
       e.value::text as value, e.find_key as key, e.error::text as error, e.resolution, e.resolved_at, e.resolved_by
  from retoma.resolve_orphan(:run, :tenant, :step, :item, :revision, :name, :resolution, :by) e
  join retoma.runs r on r.id = e.run
  join retoma.versions v on v.id = r.version
  join retoma.tenants t on t.id = r.tenant;
