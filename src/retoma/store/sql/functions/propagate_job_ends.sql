-- Propagate the ends of jobs: count down the jobs that wait for them, skip jobs that cannot run without their results, and end
-- runs whose last sink is final. `p_failed` are runs with a missing result. Locks waiting jobs before runs, each by key.
create or replace function retoma.propagate(p_now timestamptz, p_events retoma.edge_event[], p_failed uuid[]) returns void
language plpgsql as $$
declare
  v_events retoma.edge_event[] := p_events;
  v_run_ends retoma.edge_event[];
begin
  while v_events is not null loop
    v_run_ends := v_run_ends || (select array_agg(m) from unnest(v_events) m where m.edge_kind = 'end');
    v_events := nullif(
      retoma.count_down_dependencies(p_now, v_events) || retoma.skip_or_default(p_now, v_events), '{}');
  end loop;
  if p_failed is not null then
    perform from retoma.runs where id = any (p_failed) order by id for update;
    update retoma.runs set has_errors = true where id = any (p_failed) and not has_errors;
  end if;
  if v_run_ends is not null then
    perform retoma.complete_runs(p_now, v_run_ends);
  end if;
end $$;

-- How many dependencies of its target this event resolves: one, or, where it represents the items of a fan-out, one minus the
-- items that now exist.
create or replace function retoma.resolved_dependencies(p_event retoma.edge_event) returns int immutable language sql as $$
  select case when p_event.via = '' then 1 else 1 - coalesce(p_event.items, 0) end;
$$;

-- A job waits for single ends (`count`), or all items of a step wait for the same one (`share`). All ends for one job are
-- counted together, because one statement writes a row only once.
create or replace function retoma.count_down_dependencies(p_now timestamptz, p_events retoma.edge_event[]) returns retoma.edge_event[]
language plpgsql as $$
declare
  v_next retoma.edge_event[];
begin
  -- Another transaction may be creating the items: see them, or let it see this end.
  perform retoma.lock_runs('share', array_agg(m.run)) from unnest(p_events) m where m.edge_kind = 'share' having count(*) > 0;

  with ended as (
    select m.run, m.to_step, case when m.same_item then m.item else '' end as item, retoma.resolved_dependencies(m) as n,
           case when not m.optional then m.missing end as code
      from unnest(p_events) m
     where m.edge_kind = 'count'
    union all
    select m.run, m.to_step, w.item, 1, case when not m.optional then m.missing end
      from unnest(p_events) m
      join retoma.jobs w on w.run = m.run and w.step = m.to_step and w.state = 'waiting'
     where m.edge_kind = 'share'
  ), target as (
    select run, to_step, item, sum(n)::int as n, min(code) as code
      from ended
     group by 1, 2, 3
     order by 1, 2, 3
  ), counted as (
    update retoma.jobs j
       set waiting_on = j.waiting_on - t.n,
           -- A failed dependency outweighs an unwanted one, whichever ended first.
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
  select array_agg(retoma.edge_event(c.job, g)) into v_next
    from counted c
    join retoma.edges g on g.version = (c.job).version and g.from_step = (c.job).step
   where (c.job).state = 'skipped';
  return v_next;
end $$;

-- Jobs whose only dependency has no result run with their parameter's default, or are skipped.
create or replace function retoma.skip_or_default(p_now timestamptz, p_events retoma.edge_event[]) returns retoma.edge_event[]
language plpgsql as $$
declare
  v_next retoma.edge_event[];
begin
  with created as (
    insert into retoma.jobs as j (run, step, item, revision, version, tenant, queue, rank, position, state, worker,
                             created_at, ended_at, code, pool, review_due)
    select m.run, m.to_step, m.item, m.revision, m.version, m.tenant, m.queue, m.rank - m.head_start, m.position,
           case when m.optional then 'ready' else 'skipped' end::retoma.job_state, case when not m.optional then 0 end,
           p_now, case when not m.optional then p_now end, case when not m.optional then m.missing end, m.pool, m.opens_review
      from unnest(p_events) m
     where m.edge_kind = 'create'
    returning j as job
  )
  select array_agg(retoma.edge_event(m.job, g)) into v_next
    from created m
    join retoma.edges g on g.version = (m.job).version and g.from_step = (m.job).step
   where (m.job).state = 'skipped';
  return v_next;
end $$;

create or replace function retoma.complete_runs(p_now timestamptz, p_events retoma.edge_event[]) returns void language sql as $$
  with target as (
    select m.run, sum(retoma.resolved_dependencies(m))::int as n
      from unnest(p_events) m
     group by 1
     order by 1
  ), counted as (
    update retoma.runs r
       set open_sinks = r.open_sinks - t.n,
           state = case when r.open_sinks <> t.n then r.state
                        when r.has_errors then 'completed_with_errors'
                        else 'completed' end::retoma.run_state,
           ended_at = case when r.open_sinks = t.n then p_now end
      from target t
     where r.id = t.run
       -- Written so that the planner does not expect few open runs and scan them all.
       and num_nonnulls(r.final_state, r.ended_at) < 1
    returning r.id, r.revision, r.state, r.ended_at
  ), logged as (
    insert into retoma.events (run, at, revision, kind, data)
    select e.id, p_now, e.revision, e.kind, e.data
      from (
        -- It progressed before the watchdog checked again.
        select c.id, c.revision, 1 as ordinal, 'resume' as kind, json_build_object('by', 'itself') as data
          from counted c
          join retoma.stuck_runs s on s.run = c.id
          join retoma.runs before on before.id = c.id and before.state = 'stuck'
         where c.ended_at is not null
        union all
        select id, revision, 2, 'end', json_build_object('state', state) from counted where ended_at is not null) e
     order by e.ordinal
  )
  select retoma.enqueue_deliveries(p_now, array_agg(c.id), 'run.' || c.state)
    from counted c
   where c.ended_at is not null
     and (exists (select from retoma.run_webhooks h where h.run = c.id)
          or exists (select from retoma.endpoints e where e.events is not null))
   group by c.state;
$$;
