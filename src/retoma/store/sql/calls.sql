-- name: exchange
-- Give back what ended, take what comes next.
select *
  from retoma.exchange(
    :worker, :lane, :call,
    :run, :step, :item, :revision, :fence, :output, :items,
    :item_outcome, :item_key, :item_value,
    :back_run, :back_step, :back_item, :back_revision, :back_fence,
    :back_outcome, :back_delay, :back_spent_ms, :back_code, :back_error,
    :queues, :versions, :after, :room, :suspect);

-- name: held_by
-- All that a worker holds, after an answer was lost.
select *
  from retoma.held_by(:worker);

-- name: start_runs
-- Start many runs; one row each, in their order.
select started, created, same_input
  from retoma.start_runs(:id, :tenant, :version, :input, :key, :digest, :run_at, :head_start, :hook, :resumes, :retries, :deadline,
                         :tell);

-- name: sweep
-- Declare silent workers dead and give back what they held.
select worker, jobs
  from retoma.sweep(:silence, :seen_for);

-- name: repair_runs
-- End open runs in which nothing lives any more.
select o_ended as ended, o_last as last
  from retoma.repair_runs(:after, :limit);

-- name: promote
-- Make delayed jobs claimable whose time has come.
select promoted, next_at - retoma.now() as next_in, look_at - retoma.now() as look_in,
       case when watch_at < 'infinity' then watch_at - retoma.now() end as watch_in
  from retoma.promote(:limit);
