-- Rerun these jobs at the run's next revision, with everything downstream of them and of those that a person edited
-- (`p_edited`); the run continues. A job whose dependencies stay as they are is created at once, the others as their
-- dependencies end, in the same way as the first time. A job that is not a target keeps its result if its inputs are the same,
-- unless `p_no_reuse`. The caller holds the run as `lock_run_for_action` does; with `p_force` running jobs are superseded.
-- Returns how many jobs were created at once.
create or replace function retoma.rerun_jobs(
  p_now timestamptz, p_run retoma.runs, p_jobs retoma.job_key[], p_edited retoma.job_key[], p_feedback jsonb, p_no_reuse boolean,
  p_force boolean) returns int
language plpgsql as $$
declare
  v_revision int := p_run.revision + 1;
  v_affected retoma.job_key[];
  v_open retoma.job_key[];
  v_sinks int;
  v_created int;
begin
  if exists (select from unnest(p_edited) j join retoma.edges g on g.version = p_run.version and g.from_step = j.step and g.edge_kind = 'expand') then
    raise exception 'its list already has items' using errcode = 'RT003';
  end if;
  if p_edited <> '{}' then
    p_jobs := retoma.exclude_jobs(p_jobs, retoma.jobs_used_only_by(p_run.version, p_edited));
  end if;
  select array_agg((p_run.id, a.step, a.item, 0)::retoma.job_key) into v_affected
    from retoma.find_affected_jobs(p_run.id, p_run.version, p_jobs || p_edited) a
   where not exists (select from unnest(p_edited) g where g.step = a.step and g.item = a.item);
  -- Single items of a list that reruns are created by it, if they are still on it.
  v_affected := array(select a from unnest(v_affected) a
                       where a.item is null or not exists (select from unnest(v_affected) n where n.step = a.step and n.item is null));
  v_open := retoma.unfinished_jobs(p_run, v_affected);
  if p_run.ended_at is null then
    perform retoma.refuse_if_busy(p_run, p_jobs, v_affected, v_open, p_force);
    perform retoma.refuse_if_new_items_share_it(p_run, v_affected || p_edited, v_open);
    perform retoma.supersede_jobs(p_now, p_run.id, v_affected);
  else
    -- Reruns that were pending when the run ended will not happen.
    delete from retoma.pending_reruns l
     where l.run = p_run.id and l.revision < v_revision
       and not exists (select from retoma.jobs j where j.run = l.run and j.step = l.step and j.item = l.item and j.revision = l.revision);
  end if;

  -- Before the jobs: whether a review opens depends on it.
  insert into retoma.pending_reruns (run, revision, step, item, target, feedback)
  select p_run.id, v_revision, a.step, coalesce(a.item, ''), p_no_reuse or t.step is not null, case when t.step is not null then p_feedback end
    from (select step, item from unnest(v_affected)
          union select t.step, t.item from unnest(p_jobs) t) a
    left join unnest(p_jobs) t on t.step = a.step and t.item = a.item
      on conflict do nothing;

  with affected as materialized (
    select a.step, a.item from unnest(v_affected) a
  ), open as materialized (
    select o.step, o.item from unnest(v_open) o
  ), dependencies as materialized (
    select g.from_step, g.to_step, g.same_item from retoma.edges g
     where g.version = p_run.version and g.via = '' and g.edge_kind in ('create', 'count', 'share')
  ), waits as materialized (
    select a.step, a.item,
           (select count(*) from dependencies n join open o on o.step = n.from_step where n.to_step = a.step and not n.same_item)
           + (select count(*) from dependencies n join open o on o.step = n.from_step and o.item = a.item
               where n.to_step = a.step and n.same_item) as left
      from affected a
     where a.item is not null
  ), previous as materialized (
    select * from retoma.current_jobs(p_run.id)
  ), created as (
    insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, waiting_on, created_at,
                             input, pool, review_due)
    select p_run.id, w.step, w.item, v_revision, p_run.version, p_run.tenant, s.queue,
           coalesce(f.rank, (extract(epoch from p_run.run_at) * 1000000)::bigint - s.head_start), coalesce(f.position, 0),
           case when w.left = 0 then 'ready' else 'waiting' end::retoma.job_state, w.left, p_now, f.input, s.pool, s.opens_review
      from waits w
      join retoma.steps s on s.version = p_run.version and s.step = w.step
      left join previous f on f.step = w.step and f.item = w.item
     -- A job with one dependency is created by the end of that dependency.
     where w.left = 0 or s.created_on <> 'dependency'
     order by w.step, w.item
    returning 1
  )
  select (select count(*) from created),
         (select count(*) from retoma.edges g join open o on o.step = g.from_step
           where g.version = p_run.version and g.edge_kind = 'end' and g.via = '')
    into v_created, v_sinks;

  delete from retoma.stuck_runs where run = p_run.id;
  update retoma.runs r
     set revision = v_revision, open_sinks = v_sinks,
         -- With nothing to wait for, it ends as it had.
         final_state = case when v_sinks = 0 then r.final_state end,
         deadline_at = p_now + r.deadline,
         watch_at = p_now + least((select stuck_after from retoma.versions where id = r.version), r.deadline),
         has_errors = f.lacks
    -- A failure that neither this rerun nor a running job resolves.
    from (select exists (select from retoma.current_jobs(p_run.id) s
                          where s.state in ('failed', 'quarantined') and s.revision < v_revision
                            and not retoma.stays_resolved_by_person(s, v_open)
                            and not exists (select from unnest(v_open) a
                                             where a.step = s.step and (a.item = s.item or a.item is null))) as lacks) f
   where r.id = p_run.id;
  if v_sinks = 0 then
    perform retoma.resolve_failed_run(p_run);
  end if;
  perform retoma.refresh_run_state(p_now, array[p_run.id]);
  return v_created;
end $$;

-- Cancel running jobs whose inputs change: late results are refused, and their reviews are withdrawn.
create or replace function retoma.supersede_jobs(p_now timestamptz, p_run uuid, p_affected retoma.job_key[]) returns void language plpgsql as $$
declare
  v_live retoma.jobs[] := array(
    select j from retoma.jobs j
     where j.run = p_run and j.state in ('waiting', 'ready', 'running', 'parked')
       and exists (select from unnest(p_affected) a where a.step = j.step and (a.item is null or a.item = j.item)));
begin
  perform retoma.cancel_review_jobs(p_now, array_agg((j.run, j.step, j.item, j.revision)::retoma.job_key), 'SUPERSEDED')
     from unnest(v_live) j where retoma.waits_for_review(j);
  -- External work keeps its slots until it has ended.
  update retoma.jobs j set stopping = true from unnest(v_live) l
   where j.run = l.run and j.step = l.step and j.item = l.item and j.revision = l.revision and j.state = 'parked';
  update retoma.external_work o set next_at = p_now from unnest(v_live) l
   where o.run = l.run and o.step = l.step and o.item = l.item and o.revision = l.revision and o.ended_at is null and l.state = 'parked';
  update retoma.jobs j
     set state = 'cancelled', code = 'SUPERSEDED', worker = 0, fence = j.fence + 1, ready_at = null, ended_at = p_now
    from unnest(v_live) l
   where j.run = l.run and j.step = l.step and j.item = l.item and j.revision = l.revision
     and j.state in ('waiting', 'ready', 'running');
  perform retoma.release_slots(array_agg((l.run, l.step, l.item, l.revision)::retoma.job_key)) from unnest(v_live) l where l.state in ('ready', 'running');
  -- A submission of a running job ends before a worker looks for it.
  perform retoma.abandon_effects(p_now, p_now + case when l.state = 'running' then interval '1 minute' else interval '0' end,
                                 array[(l.run, l.step, l.item, l.revision)::retoma.job_key])
     from unnest(v_live) l where l.state in ('ready', 'running');
end $$;

-- A person's result may be all that a failed run lacked.
create or replace function retoma.resolve_failed_run(p_run retoma.runs) returns void language sql as $$
  update retoma.runs set final_state = 'completed'
   where id = p_run.id and final_state = 'failed'
     and not exists (select from retoma.jobs_without_result(p_run) l
                       join retoma.edges g on g.version = p_run.version and g.from_step = l.step and g.edge_kind = 'end');
$$;

-- Rerun these jobs without their dependents. The run then ends as it had, with errors or without.
create or replace function retoma.rerun_jobs_isolated(p_now timestamptz, p_run retoma.runs, p_jobs retoma.job_key[]) returns void language plpgsql as $$
begin
  if exists (select from unnest(p_jobs) j join retoma.edges g on g.version = p_run.version and g.from_step = j.step and g.edge_kind = 'expand') then
    raise exception 'its list already has items' using errcode = 'RT003';
  end if;
  insert into retoma.pending_reruns (run, revision, step, item)
  select p_run.id, p_run.revision + 1, j.step, j.item from unnest(p_jobs) j;
  insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, created_at, input, pool,
                           review_due, isolated_rerun)
  select s.run, s.step, s.item, p_run.revision + 1, s.version, s.tenant, t.queue, s.rank, s.position, 'ready', p_now, s.input, t.pool,
         t.opens_review, true
    from unnest(p_jobs) j
    join retoma.current_jobs(p_run.id) s on s.step = j.step and s.item = j.item
    join retoma.steps t on t.version = s.version and t.step = s.step;
  delete from retoma.stuck_runs where run = p_run.id;
  update retoma.runs r
     set revision = r.revision + 1, final_state = case when r.state = 'failed' then r.state else 'completed' end,
         deadline_at = p_now + r.deadline,
         watch_at = p_now + least((select stuck_after from retoma.versions where id = r.version), r.deadline)
   where r.id = p_run.id;
  perform retoma.refresh_run_state(p_now, array[p_run.id]);
end $$;
