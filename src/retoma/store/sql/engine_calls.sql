-- name: finish_and_claim
-- Record outcomes, then claim new jobs.
select *
  from retoma.finish_and_claim(
    :worker, :link, :call_number,
    :run, :step, :item, :revision, :fence, :output, :items,
    :item_outcome, :item_key, :item_value,
    :back_run, :back_step, :back_item, :back_revision, :back_fence,
    :back_outcome, :back_delay, :back_spent_ms, :back_code, :back_error, :back_review, :back_effect,
    :queues, :versions, :after, :room, :suspect);

-- name: list_held_jobs
-- Return all jobs that a worker holds, after an answer was lost.
select *
  from retoma.claimed_jobs_of_worker(:worker);

-- name: start_runs
-- Start many runs. Returns one row for each, in order.
select started, created, same_input
  from retoma.start_runs(:id, :tenant, :version, :input, :key, :digest, :run_at, :head_start, :webhook, :resumes, :retries, :deadline,
                         :title, :notify);

-- name: start_children
-- Start the child runs of jobs.
select state
  from retoma.start_children(:worker, :job, :fence, :effect, :find, :find_key, :cancel, :request, :id, :tenant, :version, :input, :key,
                             :digest, :title, :notify);

-- name: reap_dead_workers
-- Declare workers dead after their heartbeat timeout, and release their jobs.
select worker, jobs
  from retoma.reap_dead_workers(:heartbeat_timeout, :reachable_for);

-- name: repair_runs
-- End open runs that have no active jobs.
select o_ended as ended, o_last as last
  from retoma.repair_runs(:after, :limit);

-- name: release_due_jobs
-- Release delayed jobs once they are due.
select released, next_at - retoma.now() as next_in, poll_at - retoma.now() as poll_in,
       case when watch_at < 'infinity' then watch_at - retoma.now() end as watch_in
  from retoma.release_due_jobs(:limit);
