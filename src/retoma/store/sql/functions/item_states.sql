-- The state of each item of a fan-out, over all its steps. An item is ready until its first attempt starts, and running until
-- its last step has ended. Jobs that a pending rerun will replace do not count.
create or replace function retoma.item_states(p_run uuid, p_source text)
returns table (item text, "position" int, state text, step text, attempt int, code text, tried boolean, revision int,
               started_at timestamptz, ended_at timestamptz)
stable language sql as $$
  with chain as (
    select s.step, s.position as step_position, max(s.position) over () as last
      from retoma.runs r
      join retoma.steps s on s.version = r.version and s.source = p_source and s.each and not s.internal
     where r.id = p_run
  ), newest_jobs as (
    select distinct on (j.step, j.item) j.item, j.position, j.state, j.step, j.attempt, j.code, j.failures, j.revision,
           j.started_at, j.ended_at, j.author, c.step_position, c.step_position = c.last as is_last
      from chain c
      join retoma.jobs j on j.run = p_run and j.step = c.step
       and j.revision >= (select retoma.item_list_revision(p_run, r.version, c.step, retoma.max_revision()) from retoma.runs r where r.id = p_run)
     order by j.step, j.item, j.revision desc
  ), counting as (
    select s.*, max(s.revision) over (partition by s.item) as newest from newest_jobs s
     where not exists (select from retoma.pending_reruns m
                        where m.run = p_run and m.step = s.step and m.item = s.item and m.revision > s.revision)
  )
  select c.item, min(c.position),
         case when bool_or(c.is_last and c.state = 'succeeded' and c.author is not null) then 'succeeded'
              when bool_or(c.state in ('failed', 'quarantined')) then 'failed'
              when bool_or(c.state = 'cancelled') then 'cancelled'
              when bool_or(c.state = 'skipped') then 'skipped'
              when bool_or(c.is_last and c.state = 'succeeded') and bool_and(c.state = 'succeeded') then 'succeeded'
              when bool_or(c.attempt > 0 or c.state = 'succeeded') then 'running'
              else 'ready' end,
         -- The step at which it failed, or else the furthest that has started.
         coalesce((array_agg(c.step order by c.step_position) filter (where c.state in ('failed', 'quarantined')))[1],
                  (array_agg(c.step order by c.step_position desc) filter (where c.attempt > 0 or c.state in ('succeeded', 'skipped')))[1],
                  (array_agg(c.step order by c.step_position))[1]),
         -- The first attempt plus every retry, over all steps; of its latest revision, if that had any.
         coalesce(1 + sum(c.attempt - 1) filter (where c.attempt > 0 and c.revision = c.newest),
                  1 + sum(c.attempt - 1) filter (where c.attempt > 0), 0)::int,
         (array_agg(c.code order by c.state in ('failed', 'quarantined') desc, c.step_position desc) filter (where c.code is not null))[1],
         bool_or(c.failures > 0 or c.code is not null or c.state in ('failed', 'quarantined')),
         max(c.revision), min(c.started_at),
         case when bool_or(c.is_last or c.state <> 'succeeded') and bool_and(c.ended_at is not null) then max(c.ended_at) end
    from counting c
   group by c.item;
$$;
