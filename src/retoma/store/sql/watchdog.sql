-- name: claim_runs_to_check
select run, version, state, revision, last_progress_event, still_for, stuck_after, max_resumes, cause, resumes, at, is_overdue
  from retoma.claim_runs_to_check(:limit, :lease);

-- name: list_running_jobs
select step, item, worker, started_at, is_overdue
  from retoma.running_jobs_of_run(:run, :grace);

-- name: get_last_item
-- The item with the latest result.
select step, item
  from retoma.events
 where run = :run and kind = 'result'
 order by id desc
 limit 1;

-- name: count_resumes
-- How often a run was resumed automatically since it last progressed. A person's resume resets the count.
select coalesce((select (e.data ->> 'number')::int
                   from retoma.events e
                  where e.run = :run and e.kind = 'resume'
                    and e.id > (select p.id from retoma.events p
                                 where p.run = :run and p.kind in ('start', 'result', 'failure', 'action')
                                 order by p.id desc limit 1)
                  order by e.id desc limit 1), 0) as resumes;

-- name: postpone_check
select retoma.postpone_check(:run, retoma.now() + :pause::interval);

-- name: mark_stuck
select retoma.mark_stuck(:run, :last_progress_event, :cause, :data, :pause) as done;

-- name: resume_run
select retoma.resume_run(:run, :tenant, :by, :automatic, :pause, :grace)::text as state;

-- name: clear_stuck
select retoma.clear_stuck(:run, :pause);

-- name: fail_stuck_run
select retoma.fail_stuck_run(:run, :last_progress_event, :grace) as done;

-- name: set_run_deadline
-- Let a run fail if it has not ended by then, unless its deadline is sooner, or another attempt owns the job.
update retoma.runs
   set deadline_at = retoma.now() + :limit::interval, watch_at = least(watch_at, retoma.now() + :limit)
 where id = :run and ended_at is null and coalesce(deadline_at > retoma.now() + :limit, true)
   and exists (select from retoma.jobs j
                where j.run = :run and j.step = :step and j.item = :item and j.revision = :revision
                  and j.fence = :fence and j.state = 'running');

-- name: fail_overdue_run
select retoma.fail_overdue_run(:run) as done;

-- name: list_stuck
select s.run, r.title as run_title, v.pipeline, t.name as tenant, r.revision, s.since, s.cause, s.data::text as data, s.resumes,
       coalesce(r.resumes, v.resumes) as max_resumes
  from retoma.stuck_runs s
  join retoma.runs r on r.id = s.run and r.state = 'stuck'
  join retoma.versions v on v.id = r.version
  join retoma.tenants t on t.id = r.tenant
 where (:tenants::int[] is null or r.tenant = any (:tenants)) and (:run::uuid is null or s.run = :run)
 order by s.since, s.run
 limit :limit;
