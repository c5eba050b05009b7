-- Carry out what ended jobs set in motion: count down the jobs that wait for them, skip what cannot run without
-- their results, and end the runs whose last sink is final. In `p_failed` a result is missing. Locks waiting jobs
-- before runs, each by key.
create or replace function retoma.settle(p_now timestamptz, p_motions retoma.motion[], p_failed uuid[]) returns void
language plpgsql as $$
declare
  v_motions retoma.motion[] := p_motions;
  v_ends retoma.motion[];
begin
  while v_motions is not null loop
    v_ends := v_ends || (select array_agg(m) from unnest(v_motions) m where m.act = 'end');
    v_motions := nullif(
      retoma.count_down(p_now, v_motions) || retoma.pass_over(p_now, v_motions), '{}');
  end loop;
  if p_failed is not null then
    perform from retoma.runs where id = any (p_failed) order by id for update;
    update retoma.runs set with_errors = true where id = any (p_failed) and not with_errors;
  end if;
  if v_ends is not null then
    perform retoma.end_runs(p_now, v_ends);
  end if;
end $$;

-- How much of what its target waits for this motion settles: one need, or, where it stands in for the items
-- of a fan-out, all of that need but the items that now exist.
create or replace function retoma.weight(p_motion retoma.motion) returns int immutable language sql as $$
  select case when p_motion.via = '' then 1 else 1 - coalesce(p_motion.items, 0) end;
$$;

-- A job waits for one end at a time (`count`), or all items of a step wait for the same one (`share`). All that
-- ended for one job is counted together, because one statement writes a row only once.
create or replace function retoma.count_down(p_now timestamptz, p_motions retoma.motion[]) returns retoma.motion[]
language plpgsql as $$
declare
  v_next retoma.motion[];
begin
  -- The items may be made in another transaction just now: see them, or let it see this end.
  perform retoma.lock_runs('share', array_agg(m.run)) from unnest(p_motions) m where m.act = 'share' having count(*) > 0;

  with ended as (
    select m.run, m.to_step, case when m.same_item then m.item else '' end as item, retoma.weight(m) as n,
           case when not m.optional then m.missing end as code
      from unnest(p_motions) m
     where m.act = 'count'
    union all
    select m.run, m.to_step, w.item, 1, case when not m.optional then m.missing end
      from unnest(p_motions) m
      join retoma.jobs w on w.run = m.run and w.step = m.to_step and w.state = 'waiting'
     where m.act = 'share'
  ), target as (
    select run, to_step, item, sum(n)::int as n, min(code) as code
      from ended
     group by 1, 2, 3
     order by 1, 2, 3
  ), counted as (
    update retoma.jobs j
       set waiting_on = j.waiting_on - t.n,
           -- A failed need outweighs one that was not wanted, whichever ended first.
           code = least(j.code, t.code),
           state = case when j.waiting_on <> t.n then 'waiting'
                        when coalesce(j.code, t.code) is null then 'ready'
                        else 'skipped' end::retoma.job_state,
           worker = case when j.waiting_on = t.n and coalesce(j.code, t.code) is not null then 0 end,
           ended_at = case when j.waiting_on = t.n and coalesce(j.code, t.code) is not null then p_now end
      from target t
     where j.run = t.run and j.step = t.to_step and j.item = t.item and j.state = 'waiting'
    returning j as job
  )
  select array_agg(retoma.motion_of(c.job, g)) into v_next
    from counted c
    join retoma.edges g on g.version = (c.job).version and g.from_step = (c.job).step
   where (c.job).state = 'skipped';
  return v_next;
end $$;

-- Jobs whose one need has no result: they run with their parameter's default, or are skipped.
create or replace function retoma.pass_over(p_now timestamptz, p_motions retoma.motion[]) returns retoma.motion[]
language plpgsql as $$
declare
  v_next retoma.motion[];
begin
  with made as (
    insert into retoma.jobs as j (run, step, item, revision, version, tenant, queue, rank, position, state, worker,
                             created_at, ended_at, code, pool)
    select m.run, m.to_step, m.item, m.revision, m.version, m.tenant, m.queue, m.rank - m.head_start, m.position,
           case when m.optional then 'ready' else 'skipped' end::retoma.job_state, case when not m.optional then 0 end,
           p_now, case when not m.optional then p_now end, case when not m.optional then m.missing end, m.pool
      from unnest(p_motions) m
     where m.act = 'make'
    returning j as job
  )
  select array_agg(retoma.motion_of(m.job, g)) into v_next
    from made m
    join retoma.edges g on g.version = (m.job).version and g.from_step = (m.job).step
   where (m.job).state = 'skipped';
  return v_next;
end $$;

create or replace function retoma.end_runs(p_now timestamptz, p_motions retoma.motion[]) returns void language sql as $$
  with target as (
    select m.run, sum(retoma.weight(m))::int as n
      from unnest(p_motions) m
     group by 1
     order by 1
  ), counted as (
    update retoma.runs r
       set open_sinks = r.open_sinks - t.n,
           state = case when r.open_sinks <> t.n then r.state
                        when r.with_errors then 'completed_with_errors'
                        else 'completed' end::retoma.run_state,
           ended_at = case when r.open_sinks = t.n then p_now end
      from target t
     where r.id = t.run
       -- Written so that the planner does not take open runs for few and look through them all.
       and num_nonnulls(r.ends_as, r.ended_at) < 1
    returning r.id, r.revision, r.state, r.ended_at
  ), told as (
    insert into retoma.events (run, at, revision, kind, data)
    select e.id, p_now, e.revision, e.kind, e.data
      from (
        -- It had gone on before the watchdog looked again.
        select c.id, c.revision, 1 as place, 'resume' as kind, json_build_object('by', 'itself') as data
          from counted c
          join retoma.stuck s on s.run = c.id
          join retoma.runs before on before.id = c.id and before.state = 'stuck'
         where c.ended_at is not null
        union all
        select id, revision, 2, 'end', json_build_object('state', state) from counted where ended_at is not null) e
     order by e.place
  )
  select retoma.owe(p_now, array_agg(c.id), 'run.' || c.state)
    from counted c
   where c.ended_at is not null
     and (exists (select from retoma.hooks h where h.run = c.id)
          or exists (select from retoma.endpoints e where e.events is not null))
   group by c.state;
$$;
