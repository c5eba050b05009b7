-- name: rerun_failed
select o_revision as revision, o_jobs as jobs
  from retoma.rerun_failed(:run, :tenant, :by, :step, :items);

-- name: edit_result
select o_revision as revision, o_jobs as jobs
  from retoma.edit_result(:run, :tenant, :by, :step, :item, :value);

-- name: skip_items
select o_revision as revision, o_jobs as jobs
  from retoma.skip_items(:run, :tenant, :by, :step, :items);
