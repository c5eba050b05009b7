-- name: rerun_failed
select o_revision as revision, o_jobs as jobs
  from retoma.rerun_failed(:run, :tenant, :by, :step, :items, :ask);

-- name: edit_result
select o_revision as revision, o_jobs as jobs
  from retoma.edit_result(:run, :tenant, :by, :step, :item, :value, :stay, :ask);

-- name: rerun
select o_revision as revision, o_jobs as jobs
  from retoma.rerun(:run, :tenant, :by, :why, :steps::text[], :items::text[], :stale, :alone, :fresh, :ask);

-- name: fork
select o_revision as revision, o_jobs as jobs, o_run as run
  from retoma.fork_run(:run, :tenant, :by, :new, :input, :steps::text[], :ask);

-- name: answered_before
-- What an act on this run was first answered with.
select o_revision as revision, o_jobs as jobs
  from retoma.runs r, retoma.done_before(r.id, :ask)
 where r.id = :run and (:tenant::int is null or r.tenant = :tenant);

-- name: kept_answer
select answer
  from retoma.act_keys
 where subject = :run and key = :key;

-- name: keep_answer
select retoma.keep_answer(:run, :ask, :answer);

-- name: resume
select o_state as state, o_done as done
  from retoma.resume_once(:run, :tenant, :by, :pause, :grace, :ask);

-- name: cancel
select retoma.cancel_once(:run, :tenant, :by, :ask) as state;

-- name: stale
select s.step, s.item
  from retoma.stale(:run) s
 order by s.step, s.item;

-- name: made
-- Every revision of one job, the newest first.
select j.revision, j.state::text as state, j.output::text as output, j.author, m.reused_from, m.feedback::text as feedback,
       j.created_at, j.ended_at
  from retoma.jobs j
  left join retoma.remakes m on m.run = j.run and m.revision = j.revision and m.step = j.step and m.item = j.item
 where j.run = :run and j.step = :step and j.item = :item
 order by j.revision desc
 limit :limit;

-- name: what_came_before
select o_reused::text as reused, o_former::text as former, o_feedback::text as feedback, o_decision as decision, o_value::text as value
  from retoma.what_came_before(:run, :step, :item, :revision);

-- name: skip_items
select o_revision as revision, o_jobs as jobs
  from retoma.skip_items(:run, :tenant, :by, :step, :items, :ask);
