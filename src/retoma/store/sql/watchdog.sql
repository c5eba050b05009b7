-- name: watch_due
select run, version, state, revision, seen, still_for, stuck_after, may_resume, cause, resumes, at, is_overdue
  from retoma.watch_due(:limit, :lease);

-- name: running_of
select step, item, worker, started_at, is_overdue
  from retoma.running_of(:run, :grace);

-- name: last_item
-- The item whose result came last.
select step, item
  from retoma.events
 where run = :run and kind = 'result'
 order by id desc
 limit 1;

-- name: resumes_of
-- How often a run went on by itself since it last progressed; a person's resume begins the count anew.
select coalesce((select (e.data ->> 'number')::int
                   from retoma.events e
                  where e.run = :run and e.kind = 'resume'
                    and e.id > (select p.id from retoma.events p
                                 where p.run = :run and p.kind in ('start', 'result', 'failure', 'act')
                                 order by p.id desc limit 1)
                  order by e.id desc limit 1), 0) as resumes;

-- name: put_off
update retoma.runs r
   set watch_at = retoma.watched_until(r, retoma.now() + :pause::interval)
 where id = :run and ended_at is null;

-- name: mark_stuck
select retoma.mark_stuck(:run, :seen, :cause, :data, :pause) as done;

-- name: resume_run
select retoma.resume_run(:run, :tenant, :by, :automatic, :pause, :grace)::text as state;

-- name: clear_stuck
select retoma.clear_stuck(:run, :pause);

-- name: give_up_run
select retoma.give_up_run(:run, :seen, :grace) as done;

-- name: limit_run
-- Let it fail if it is not over so long from now, unless it has less time already, or the job is another attempt's.
update retoma.runs
   set deadline_at = retoma.now() + :limit::interval, watch_at = least(watch_at, retoma.now() + :limit)
 where id = :run and ended_at is null and coalesce(deadline_at > retoma.now() + :limit, true)
   and exists (select from retoma.jobs j
                where j.run = :run and j.step = :step and j.item = :item and j.revision = :revision
                  and j.fence = :fence and j.state = 'running');

-- name: expire_run
select retoma.expire_run(:run) as done;

-- name: list_stuck
select s.run, v.pipeline, t.name as tenant, r.revision, s.since, s.cause, s.data::text as data, s.resumes,
       coalesce(r.resumes, v.resumes) as may_resume
  from retoma.stuck s
  join retoma.runs r on r.id = s.run and r.state = 'stuck'
  join retoma.versions v on v.id = r.version
  join retoma.tenants t on t.id = r.tenant
 where (:tenant::int is null or r.tenant = :tenant) and (:run::uuid is null or s.run = :run)
 order by s.since, s.run
 limit :limit;
