-- name: list_schedules
-- By tenant and name.
select s.id, t.name as tenant, s.name, s.title, s.pipeline, s.cron, extract(epoch from s.every)::float8 as every_seconds, s.time_zone,
       s.anchor_at, s.inputs::text as inputs, s.catch_up, s.catch_up_limit, extract(epoch from s.jitter)::float8 as jitter_seconds,
       s.overlap, s.declared_by, s.application, s.revision, s.next_at, s.starts_at, s.paused_at, s.paused_by, s.pause_reason,
       s.last_due_at, s.last_run, s.created_at, s.changed_at, s.changed_by
  from retoma.schedules s
  join retoma.tenants t on t.id = s.tenant
 where (:ids::int[] is null or s.id = any (:ids))
   and (:tenants::int[] is null or s.tenant = any (:tenants))
   and (:name::text is null or s.name = :name)
   and (:pipelines::text[] is null or s.pipeline = any (:pipelines))
   and (:application::text is null or s.application = :application)
 order by t.name, s.name
 limit :limit;

-- name: list_due_schedules
-- The ids of those that must start a run now, the latest first. Every process asks every second.
select id
  from retoma.schedules
 where starts_at <= retoma.now() and paused_at is null and pipeline = any (:pipelines)
 order by starts_at, id
 limit :limit;

-- name: add_schedule
insert into retoma.schedules (
  tenant, name, title, pipeline, cron, every, time_zone, anchor_at, inputs, catch_up, catch_up_limit, jitter, overlap, declared_by,
  application, next_at, starts_at, created_at, changed_at, changed_by)
values (:tenant, :name, :title, :pipeline, :cron, :every, :time_zone, :anchor_at, :inputs, :catch_up, :catch_up_limit, :jitter, :overlap,
        :declared_by, :application, :next_at, :starts_at, retoma.now(), retoma.now(), :by)
    on conflict (tenant, name) do nothing
returning id;

-- name: change_schedule
-- Unless it was changed since the caller read it. Without `moves`, it stays due when it is.
update retoma.schedules
   set title = :title, pipeline = :pipeline, cron = :cron, every = :every, time_zone = :time_zone, inputs = :inputs,
       catch_up = :catch_up, catch_up_limit = :catch_up_limit, jitter = :jitter, overlap = :overlap,
       anchor_at = case when :moves::boolean then :anchor_at::timestamptz else anchor_at end,
       next_at = case when :moves then :next_at::timestamptz else next_at end,
       starts_at = case when :moves then :starts_at::timestamptz else starts_at end,
       revision = revision + 1, changed_at = retoma.now(), changed_by = :by
 where id = :id and revision = :revision
returning id;

-- name: pause_schedule
-- A pause by a person stays one if the code no longer declares the schedule.
update retoma.schedules
   set paused_at = retoma.now(), paused_by = :by, pause_reason = :reason, revision = revision + 1, changed_at = retoma.now(),
       changed_by = :by
 where id = :id and paused_at is null
returning id;

-- name: resume_schedule
select retoma.resume_schedule(:id, :revision, :next_at, :starts_at, :skipped, :by, :keep) as resumed;

-- name: delete_schedule
delete from retoma.schedules
 where id = :id
returning id;

-- name: fire_schedule
select run, reason, message, late_seconds
  from retoma.fire_schedule(:id, :revision, :expected_at, :missed, :due_at, :reason, :message, :key, :run, :version, :input, :digest,
                            :title, :next_at, :starts_at, :keep);

-- name: trigger_schedule
select run, created
  from retoma.trigger_schedule(:id, :trigger, :by, :key, :run, :version, :input, :digest, :title, :keep);

-- name: list_occurrences
-- Newest first.
select schedule, due_at, recorded_at, count, triggered_by, run, reason, message,
       run is not null and not exists (select from retoma.runs r where r.id = run) as run_is_removed
  from retoma.schedule_occurrences
 where schedule = :schedule and (:before::timestamptz is null or due_at < :before)
 order by due_at desc, trigger
 limit :limit;

-- name: list_schedule_counters
select pipeline, outcome, count, late_seconds
  from retoma.schedule_counters
 order by pipeline, outcome;

-- name: get_schedule_lateness
-- How long the schedule that has waited the longest could have started.
select coalesce(max(extract(epoch from retoma.now() - starts_at)), 0)::float8 as seconds
  from retoma.schedules
 where paused_at is null and starts_at <= retoma.now();
