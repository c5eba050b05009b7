-- Record results, if these leases still own the jobs. Create the jobs that depended only on them, the first `p_keep` already
-- claimed, and return the other events of their edges.
create or replace function retoma.record_results(
  p_worker int, p_now timestamptz, p_queues text[], p_keep int,
  p_run uuid[], p_step text[], p_item text[], p_revision int[], p_fence int[], p_output json[], p_items int[],
  out o_accepted int, out o_stopping uuid[], out o_events retoma.edge_event[],
  out o_kept retoma.kept_job[], out o_pooled retoma.job_key[])
language plpgsql as $$
begin
  with ended as (
    update retoma.jobs j
       set state = 'succeeded', output = o.output, ended_at = p_now, code = null
      from unnest(p_run, p_step, p_item, p_revision, p_fence, p_output, p_items)
           with ordinality as o (run, step, item, revision, fence, output, items, outcome)
     where j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
       and j.worker = p_worker and j.fence = o.fence and j.state = 'running'
    returning j.run, j.version, j.tenant, j.revision, j.rank, j.position, j.item, j.step, j.attempt, j.stopping, j.isolated_rerun,
              j.pool is not null as may_hold_slots,
              o.outcome::int, o.items
  ), logged as (
    insert into retoma.events (run, at, revision, attempt, worker, kind, step, item)
    select run, p_now, revision, attempt, p_worker, 'result', step, item from ended
  ), fired as (
    select case when g.edge_kind <> 'create' then
             (e.run, e.version, e.tenant, e.revision, e.rank, e.position, e.item, e.step, null, e.outcome, e.items,
              g.to_step, g.edge_kind, g.via, g.same_item, g.optional, g.self_contained, g.queue, g.head_start, g.dependency_count, g.pool,
              g.opens_review)::retoma.edge_event end as event,
           g.edge_kind, e.run, e.version, e.tenant, e.revision, e.rank, e.position, e.item, g.to_step, g.queue, g.head_start, g.pool,
           g.opens_review, g.self_contained and not g.opens_review and g.queue = any (p_queues) and row_number() over () <= p_keep as kept
      from ended e
      join retoma.edges g on g.version = e.version and g.from_step = e.step
     where not e.stopping and not e.isolated_rerun
  ), created as (
    insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, worker, fence,
                             attempt, created_at, started_at, pool, review_due)
    select run, to_step, item, revision, version, tenant, queue, rank - head_start, position,
           case when kept then 'running' else 'ready' end::retoma.job_state, case when kept then p_worker end,
           kept::int, kept::int, p_now, case when kept then p_now end, pool, opens_review
      from fired
     where edge_kind = 'create'
    returning run, step, item, revision, version, tenant, worker
  )
  select (select count(*) from ended),
         (select array_agg(distinct run) from ended where stopping or isolated_rerun),
         (select array_agg(event) from fired where edge_kind <> 'create'),
         (select array_agg((run, step, item, revision, version, tenant)::retoma.kept_job) from created where worker = p_worker),
         (select array_agg((run, step, item, revision)::retoma.job_key) from ended where may_hold_slots)
    into o_accepted, o_stopping, o_events, o_kept, o_pooled;
end $$;
