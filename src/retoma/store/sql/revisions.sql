-- name: rerun_failed
select o_revision as revision, o_jobs as jobs
  from retoma.rerun_failed(:run, :tenant, :by, :step, :items, :action_key);

-- name: edit_result
select o_revision as revision, o_jobs as jobs
  from retoma.edit_result(:run, :tenant, :by, :step, :item, :value, :keep_dependents, :action_key);

-- name: rerun
select o_revision as revision, o_jobs as jobs
  from retoma.rerun_steps(:run, :tenant, :by, :reason, :steps::text[], :items::text[], :stale, :isolated, :no_reuse, :action_key);

-- name: fork
select o_revision as revision, o_jobs as jobs, o_run as run
  from retoma.fork_run(:run, :tenant, :by, :new, :input, :title, :steps::text[], :action_key);

-- name: find_answer
-- The recorded answer of an action on this run.
select o_revision as revision, o_jobs as jobs
  from retoma.runs r, retoma.find_answered_revision(r.id, :action_key)
 where r.id = :run and (:tenant::int is null or r.tenant = :tenant);

-- name: get_answer
select answer
  from retoma.action_keys
 where subject = :run and key = :key;

-- name: record_answer
select retoma.record_answer(:run, :action_key, :answer);

-- name: resume
select o_state as state, o_done as done
  from retoma.resume_once(:run, :tenant, :by, :pause, :grace, :action_key);

-- name: cancel
select retoma.cancel_once(:run, :tenant, :by, :action_key) as state;

-- name: list_stale_jobs
select s.step, s.item
  from retoma.stale_jobs(:run) s
 order by s.step, s.item;

-- name: get_step_history
-- Every revision of one job, the newest first.
select j.revision, j.state::text as state, j.output::text as output, j.author, m.reused_from, m.feedback::text as feedback,
       j.created_at, j.ended_at
  from retoma.jobs j
  left join retoma.pending_reruns m on m.run = j.run and m.revision = j.revision and m.step = j.step and m.item = j.item
 where j.run = :run and j.step = :step and j.item = :item
 order by j.revision desc
 limit :limit;

-- name: get_previous_work
select o_reused::text as reused, o_previous_result::text as previous_result, o_feedback::text as feedback, o_decision as decision, o_value::text as value
  from retoma.previous_work(:run, :step, :item, :revision);

-- name: skip_items
select o_revision as revision, o_jobs as jobs
  from retoma.skip_items(:run, :tenant, :by, :step, :items, :action_key);
