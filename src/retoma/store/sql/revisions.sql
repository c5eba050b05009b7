-- name: rerun_failed
select retoma.rerun_failed(:run, :tenant, :by, :step, :items, :action_key) as answer;

-- name: edit_result
select retoma.edit_result(:run, :tenant, :by, :step, :item, :value, :keep_dependents, :action_key) as answer;

-- name: rerun
select retoma.rerun_steps(:run, :tenant, :by, :reason, :steps, :items, :stale, :isolated, :no_reuse, :action_key) as answer;

-- name: fork
select retoma.fork_run(:run, :tenant, :by, :new, :input, :title, :steps, :action_key) as answer;

-- name: find_answer
-- The recorded answer of an action on this run.
select retoma.find_answer(r.id, :action_key) as answer
  from retoma.runs r
 where r.id = :run and (:tenant::int is null or r.tenant = :tenant);

-- name: get_answer
select answer
  from retoma.action_keys
 where subject = :run and key = :key;

-- name: record_answer
select retoma.record_answer(:run, :action_key, :answer);

-- name: resume
select retoma.resume_once(:run, :tenant, :by, :pause, :grace, :action_key) as answer;

-- name: cancel
select jsonb_build_object('state', retoma.cancel_run(:run, :tenant, :by, :action_key)) as answer;

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
-- The previous work of a job. Its feedback is the last one that was given.
select o_reused::text as reused, o_previous_result::text as previous_result, o_feedback::text as feedback,
       (select max(m.revision) from retoma.pending_reruns m
         where o_feedback is not null and m.run = :run and m.revision <= :revision and m.step = :step and m.item = :item
           and m.feedback is not null) as feedback_revision,
       o_decision as decision, o_value::text as value, o_decided_by as decided_by, o_notes as notes
  from retoma.load_previous_work(:run, :step, :item, :revision);

-- name: skip_items
select retoma.skip_items(:run, :tenant, :by, :step, :items, :action_key) as answer;
