-- Make the items of fan-outs whose sources have succeeded, the first `p_keep` already claimed.
-- `p_outcome` says for each item which outcome of the call it belongs to.
create or replace function retoma.expand(
  p_worker int, p_now timestamptz, p_queues text[], p_keep int, p_motions retoma.motion[],
  p_outcome int[], p_key text[], p_value json[],
  out o_motions retoma.motion[], out o_kept retoma.kept[])
language plpgsql as $$
begin
  -- A shared need may end in another transaction just now: see it, or let it see our items.
  perform retoma.lock_runs('share', array_agg(m.run))
     from unnest(p_motions) m
     join retoma.edges g on g.version = m.version and g.to_step = m.to_step and g.act = 'share';

  with sharing as materialized (
    select m.run, m.from_step, m.to_step from unnest(p_motions) m where m.act = 'share'
  ), born as (
    select m.*, coalesce(shared.final, 0) as final, shared.code
      from unnest(p_motions) m
      left join lateral (
        select count(*)::int as final,
               min(case when p.state <> 'succeeded' and not g.optional then retoma.missing_because(p.state, p.code) end) as code
          from retoma.edges g
         cross join lateral (
           select c.state, c.code, c.revision
             from retoma.jobs c
            where c.run = m.run and c.step = g.from_step and c.item = ''
            order by c.revision desc limit 1) p
         where g.version = m.version and g.to_step = m.to_step and g.act = 'share'
           and p.state in ('succeeded', 'failed', 'skipped', 'quarantined')
           -- One that is about to be made anew is not final.
           and not (m.revision > 1 and p.revision < m.revision
                    and exists (select from retoma.remakes l
                                 where l.run = m.run and l.revision = m.revision and l.step = g.from_step and l.item = ''))
           -- One that ended in this very call is counted when its end is settled.
           and not exists (select from sharing s
                            where s.run = m.run and s.from_step = g.from_step and s.to_step = m.to_step)) shared on m.needs > 0
     where m.act = 'expand' and m.missing is null
  ), item as (
    select b.*, i.key, i.value, i.place, b.needs - b.final as left,
           b.needs = 0 and b.light and b.queue = any (p_queues) and row_number() over (order by b.outcome, i.place) <= p_keep as kept
      from born b
      join unnest(p_outcome, p_key, p_value) with ordinality as i (outcome, key, value, place) on i.outcome = b.outcome
  ), made as (
    insert into retoma.jobs as j (run, step, item, revision, version, tenant, queue, rank, position, state, waiting_on, worker,
                             fence, attempt, created_at, started_at, ended_at, code, input, pool)
    select run, to_step, key, revision, version, tenant, queue, rank - head_start, place,
           case when kept then 'running' when "left" > 0 then 'waiting' when code is null then 'ready' else 'skipped'
           end::retoma.job_state,
           "left", case when kept then p_worker when "left" = 0 and code is not null then 0 end,
           kept::int, kept::int, p_now, case when kept then p_now end,
           case when "left" = 0 and code is not null then p_now end, code, value, pool
      from item
     order by run, to_step, key
    returning j as job
  )
  select (select array_agg(((m.job).run, (m.job).step, (m.job).item, (m.job).revision, (m.job).version,
                            (m.job).tenant)::retoma.kept)
            from made m where (m.job).state = 'running'),
         (select array_agg(retoma.motion_of(m.job, g))
            from made m
            join retoma.edges g on g.version = (m.job).version and g.from_step = (m.job).step
           where (m.job).state = 'skipped')
    into o_kept, o_motions;
end $$;
