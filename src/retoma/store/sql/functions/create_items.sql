-- Create the items of fan-outs whose sources succeeded, the first `p_keep` of them already claimed. `p_outcome` is the index of
-- the outcome that each item belongs to.
create or replace function retoma.create_items(
  p_worker int, p_now timestamptz, p_queues text[], p_keep int, p_events retoma.edge_event[],
  p_outcome int[], p_key text[], p_value json[],
  out o_events retoma.edge_event[], out o_kept retoma.kept_job[])
language plpgsql as $$
begin
  -- A shared dependency may end in another transaction at the same time: see it, or let it see our items.
  perform retoma.lock_runs('share', array_agg(m.run))
     from unnest(p_events) m
     join retoma.edges g on g.version = m.version and g.to_step = m.to_step and g.edge_kind = 'share';

  with sharing as materialized (
    select m.run, m.from_step, m.to_step from unnest(p_events) m where m.edge_kind = 'share'
  -- Materialized, so the array is searched once for each fan-out and not for each item.
  ), expansions as materialized (
    select m.*, coalesce(shared.final, 0) as final, shared.code, array_position(p_outcome, m.outcome) as first_ordinal,
           case when m.pool is not null then cardinality(array_positions(p_outcome, m.outcome)) end as pooled_items
      from unnest(p_events) m
      left join lateral (
        select count(*)::int as final,
               min(case when p.state <> 'succeeded' and not g.optional then retoma.missing_result_code(p.state, p.code) end) as code
          from retoma.edges g
         cross join lateral (
           select c.state, c.code, c.revision
             from retoma.jobs c
            where c.run = m.run and c.step = g.from_step and c.item = ''
            order by c.revision desc limit 1) p
         where g.version = m.version and g.to_step = m.to_step and g.edge_kind = 'share'
           and p.state in ('succeeded', 'failed', 'skipped', 'quarantined')
           -- A job that is about to rerun is not final.
           and not (m.revision > 1 and p.revision < m.revision
                    and exists (select from retoma.pending_reruns l
                                 where l.run = m.run and l.revision = m.revision and l.step = g.from_step and l.item = ''))
           -- A job that ended in this call is counted when its end propagates.
           and not exists (select from sharing s
                            where s.run = m.run and s.from_step = g.from_step and s.to_step = m.to_step)) shared on m.dependency_count > 0
     where m.edge_kind = 'expand' and m.missing is null
  ), item as (
    select b.*, i.key, i.value, i.ordinal, b.dependency_count - b.final as left,
           b.dependency_count = 0 and b.self_contained and not b.opens_review and b.queue = any (p_queues) and row_number() over (order by b.outcome, i.ordinal) <= p_keep as kept
      from expansions b
      join unnest(p_outcome, p_key, p_value) with ordinality as i (outcome, key, value, ordinal) on i.outcome = b.outcome
  ), created as (
    insert into retoma.jobs as j (run, step, item, revision, version, tenant, queue, rank, position, state, waiting_on, worker,
                             fence, attempt, created_at, started_at, ended_at, code, input, pool, review_due)
    select run, to_step, key, revision, version, tenant, queue,
           rank - head_start + retoma.start_of_round(retoma.round_of_item(ordinal - first_ordinal, pooled_items)), ordinal,
           case when kept then 'running' when "left" > 0 then 'waiting' when code is null then 'ready' else 'skipped'
           end::retoma.job_state,
           "left", case when kept then p_worker when "left" = 0 and code is not null then 0 end,
           kept::int, kept::int, p_now, case when kept then p_now end,
           case when "left" = 0 and code is not null then p_now end, code, value, pool, opens_review
      from item
     order by run, to_step, key
    returning j as job
  )
  select (select array_agg(((m.job).run, (m.job).step, (m.job).item, (m.job).revision, (m.job).version,
                            (m.job).tenant)::retoma.kept_job)
            from created m where (m.job).state = 'running'),
         (select array_agg(retoma.edge_event(m.job, g))
            from created m
            join retoma.edges g on g.version = (m.job).version and g.from_step = (m.job).step
           where (m.job).state = 'skipped')
    into o_kept, o_events;
end $$;
