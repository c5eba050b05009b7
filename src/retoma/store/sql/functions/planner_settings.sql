-- The planner settings of every PL/pgSQL function that a statement calls, so they behave the same on every connection, including one
-- from a transaction pooler; of SQL functions that a statement calls and that must use indexes; and of two inner functions whose
-- reads are tested alone. The functions called by them run with the same settings, and have none of their own: a function with
-- settings is never inlined. Applied last, because replacing a function removes its settings.
do $$
declare
  c_indexes_only constant text := 'set enable_seqscan = off set plan_cache_mode = force_generic_plan';
  c_nested_loops constant text := c_indexes_only || ' set enable_hashjoin = off set enable_mergejoin = off';
  v_settings text;
  v_names text[];
  v_name text;
begin
  for v_settings, v_names in values
    (c_nested_loops, '{abort_bulk_action, add_run_webhooks, advance_bulk_action, begin_effect, cancel_run, claim_deliveries, claim_file_shard,
                       claim_looks, claim_runs_to_check, claimed_jobs_of_worker, clear_stuck, count_deleted_files, create_bulk_action, decide_review_as,
                       delete_audit_entries, delete_old_rows, deregister_worker, disable_person, edit_result, end_effect, erase_run,
                       erase_runs_of_tenant, erase_tenant_rows, fail_overdue_run, fail_stuck_run, find_answer, finish_and_claim, fire_schedule, fork_run,
                       hold_run, index_files, limit_queue, list_expired_runs, load_previous_work, lock_files, mark_stuck, next_mark, poll_due,
                       process_due_reviews, reap_dead_workers, record_callback, record_delivery_attempt, record_look, record_poll,
                       record_provider_reports, redeliver, release_due_jobs, remove_expired_runs, remove_role, repair_runs, rerun_failed, rerun_steps,
                       reserve_budget, resolve_orphan, resume_once, resume_run, resume_schedule, retry_job, set_role, sign_on, skip_items,
                       start_children, start_runs, take_ended_runs, trigger_schedule, undo_decision, update_metric_counters}'::text[]),
    (c_nested_loops, '{claim_messages, notify_of_budget, notify_of_review, notify_test, prepare_message, record_message_attempt, resend_messages}'),
    (c_indexes_only, '{busy_workers, jobs_by_pool, jobs_by_queue, jobs_of_tenant_by_queue, list_unnamed_files, next_ready_jobs, next_ready_jobs_by_step,
                       queue_load, ready_since, runs_not_started, sample_queues, select_bulk_targets}'),
    (c_indexes_only, '{begin_restored_state, drop_held, release_held}'),
    -- It joins its own rows, whose number the planner does not know, and looks up all others by `lateral`, one by one.
    (c_indexes_only || ' set enable_nestloop = off set jit = off', '{job_metrics}'),
    -- The order of the ids would lead through all runs, down to the oldest one that is found.
    (c_indexes_only || ' set enable_indexscan = off', '{list_runs_by_title}'),
    -- A bitmap would read all due deliveries of a host to send a few.
    ('set enable_bitmapscan = off', '{claim_deliveries}')
  loop
    foreach v_name in array v_names loop
      execute format('alter function retoma.%I %s', v_name, v_settings);
    end loop;
  end loop;
end $$;
