-- The current jobs of a run: the latest of every step and item, without items that are no longer on their list.
create or replace function retoma.current_jobs(p_run uuid) returns setof retoma.jobs stable language sql as $$
  select * from retoma.jobs_at_revision(p_run, retoma.max_revision());
$$;

-- The same as of a revision.
create or replace function retoma.jobs_at_revision(p_run uuid, p_through int) returns setof retoma.jobs stable language sql as $$
  with lists as materialized (
    select s.step, retoma.item_list_revision(p_run, s.version, s.step, p_through) as revision
      from retoma.runs r
      join retoma.steps s on s.version = r.version and s.each
     where r.id = p_run and r.revision > 1
  )
  select distinct on (j.step, j.item) j.*
    from retoma.jobs j
   where j.run = p_run and j.revision <= p_through
     and j.revision >= coalesce((select l.revision from lists l where l.step = j.step), 1)
   order by j.step, j.item, j.revision desc;
$$;

-- Lock a run for an action, with all its jobs that have not ended, so that reruns and jobs that end at the same time see each
-- other. Returns null if the tenant has no such run.
create or replace function retoma.lock_run_for_action(p_run uuid, p_tenant int) returns retoma.runs language plpgsql as $$
declare
  v_run retoma.runs;
  v_before text;
  v_after text;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  loop
    v_before := v_after;
    -- First running and ready jobs, then those that wait for them, each by key, as transactions that end jobs do.
    perform from retoma.jobs where run = p_run and state in ('running', 'parked', 'ready') order by step, item, revision for update;
    perform from retoma.jobs where run = p_run and state = 'waiting' order by step, item, revision for update;
    -- Jobs that ended while we waited have created others.
    select md5(string_agg(format('%s %s %s %s', j.step, j.item, j.revision, j.state), ',' order by j.step, j.item, j.revision))
      into v_after from retoma.jobs j where j.run = p_run and j.state in ('waiting', 'ready', 'running', 'parked');
    exit when v_after is not distinct from v_before;
  end loop;
  select * into v_run from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant) for update;
  return v_run;
end $$;

-- The jobs of these steps, or of these items of them.
create or replace function retoma.find_rerun_targets(p_run retoma.runs, p_steps text[], p_items text[]) returns retoma.job_key[] stable language sql as $$
  select array_agg((s.run, s.step, s.item, s.revision)::retoma.job_key order by s.step, s.item)
    from retoma.current_jobs(p_run.id) s
   where s.step = any (p_steps) and (p_items is null or s.item = '' or s.item = any (p_items));
$$;

-- All jobs that must rerun when these do: they and everything downstream. A null item stands for all items of a step whose list
-- is not known yet.
create or replace function retoma.find_affected_jobs(p_run uuid, p_version int, p_jobs retoma.job_key[])
returns table (step text, item text) stable language sql as $$
  with recursive current_jobs as materialized (
    select s.step, s.item from retoma.current_jobs(p_run) s
  ), reached (step, item) as (
    select j.step collate "C", j.item collate "C" from unnest(p_jobs) j
    union
    select g.to_step, t.item
      from reached r
      join retoma.edges g on g.version = p_version and g.from_step = r.step and g.edge_kind <> 'end' and g.via = ''
     cross join lateral (
       select case when g.same_item then r.item else '' collate "C" end as item where g.edge_kind in ('create', 'count')
       union all
       select s.item from current_jobs s where g.edge_kind = 'share' and s.step = g.to_step
       union all
       select null collate "C" where g.edge_kind = 'expand') t
  )
  select r.step, r.item from reached r;
$$;

-- Whether a person has recorded a downstream result for the item of this failed job.
create or replace function retoma.is_resolved_by_person(p_job retoma.jobs) returns boolean stable language sql as $$
  with recursive chain (step) as (
    select p_job.step
    union
    select g.to_step from chain c join retoma.edges g on g.version = p_job.version and g.from_step = c.step and g.same_item
  )
  select exists (select from chain c
                   join retoma.jobs t on t.run = p_job.run and t.step = c.step and t.item = p_job.item
                  where t.step <> p_job.step and t.author is not null and t.state = 'succeeded' and t.revision >= p_job.revision);
$$;

-- The jobs that will be unfinished when these rerun: they, and those that are running or still to come. A null item stands for
-- all items of a step whose list is not known yet.
create or replace function retoma.unfinished_jobs(p_run retoma.runs, p_affected retoma.job_key[]) returns retoma.job_key[] stable language sql as $$
  with affected as materialized (
    select a.step, a.item from unnest(p_affected) a
  ), steps as materialized (
    select s.* from retoma.steps s where s.version = p_run.version and p_run.ended_at is null
  ), current_jobs as materialized (
    select s.step, s.item, s.revision, s.state in ('waiting', 'ready', 'running', 'parked') or exists (
             select from retoma.pending_reruns l
              where l.run = p_run.id and l.step = s.step and l.item = s.item and l.revision > s.revision) as open
      from retoma.current_jobs(p_run.id) s
     where p_run.ended_at is null
  ), plain as materialized (
    select s.step from steps s
     where not s.each and not exists (select from affected a where a.step = s.step)
       and not exists (select from current_jobs t where t.step = s.step and not t.open)
  ), lists as materialized (
    select s.step from steps s join plain p on p.step = s.source
  ), items as (
    select s.step, k.item
      from steps s
      join current_jobs k on k.step = s.item_from
      left join current_jobs t on t.step = s.step and t.item = k.item
      left join affected a on a.step = s.step and (a.item is null or a.item = k.item)
     where s.each and a.step is null and coalesce(t.open, true) and not exists (select from lists l where l.step = s.step)
  )
  select array_agg((p_run.id, o.step, o.item, 0)::retoma.job_key)
    from (select step, item from affected
          union select step, '' from plain
          union select step, null from lists
          union select step, item from items) o;
$$;

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
end $$;

-- Rerun these jobs at the run's next revision, with everything downstream of them and of those that a person edited
-- (`p_edited`); the run continues. A job whose dependencies stay as they are is created at once, the others as their
-- dependencies end, in the same way as the first time. A job that is not a target keeps its result if its inputs are the same,
-- unless `p_no_reuse`. The caller holds the run as `lock_run_for_action` does; with `p_force` running jobs are superseded.
-- Returns how many jobs were created at once.
create or replace function retoma.rerun_jobs(
  p_now timestamptz, p_run retoma.runs, p_jobs retoma.job_key[], p_edited retoma.job_key[], p_feedback jsonb, p_no_reuse boolean,
  p_force boolean) returns int
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
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
                             input, pool)
    select p_run.id, w.step, w.item, v_revision, p_run.version, p_run.tenant, s.queue,
           coalesce(f.rank, (extract(epoch from p_run.run_at) * 1000000)::bigint - s.head_start), coalesce(f.position, 0),
           case when w.left = 0 then 'ready' else 'waiting' end::retoma.job_state, w.left, p_now, f.input, s.pool
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

  update retoma.runs r
     set revision = v_revision, open_sinks = v_sinks, final_state = null,
         deadline_at = p_now + r.deadline,
         watch_at = p_now + least((select stuck_after from retoma.versions where id = r.version), r.deadline),
         state = case when v_sinks > 0 then 'running' else r.state end::retoma.run_state,
         has_errors = f.lacks,
         ended_at = case when v_sinks = 0 then r.ended_at end
    -- A failure that neither this rerun nor a running job resolves.
    from (select exists (select from retoma.current_jobs(p_run.id) s
                          where s.state in ('failed', 'quarantined') and s.revision < v_revision and not retoma.is_resolved_by_person(s)
                            and not exists (select from unnest(v_open) a
                                             where a.step = s.step and (a.item = s.item or a.item is null))) as lacks) f
   where r.id = p_run.id;
  if v_sinks = 0 then
    perform retoma.recompute_final_state(p_now, p_run);
  end if;
  perform retoma.refresh_run_state(array[p_run.id]);
  return v_created;
end $$;

-- These jobs, and those whose results only they would use. Without an item, all jobs of a step.
create or replace function retoma.jobs_used_only_by(p_version int, p_jobs retoma.job_key[]) returns retoma.job_key[] stable language plpgsql as $$
declare
  v_found retoma.job_key[] := p_jobs;
  v_more retoma.job_key[];
begin
  loop
    select array_agg((null, c.step, c.item, 0)::retoma.job_key) into v_more
      from (select distinct g.from_step as step, case when g.same_item then f.item when not s.each then '' end as item
              from unnest(v_found) f
              join retoma.edges g on g.version = p_version and g.to_step = f.step and g.edge_kind <> 'end'
              join retoma.steps s on s.version = p_version and s.step = g.from_step) c
     where not exists (select from unnest(v_found) f where f.step = c.step and (f.item is null or f.item = c.item))
       and not exists (select from retoma.edges g
                        where g.version = p_version and g.from_step = c.step
                          and (g.edge_kind = 'end' or not exists (
                                select from unnest(v_found) f
                                 where f.step = g.to_step and (f.item is null or f.item = case when g.same_item then c.item else '' end))));
    exit when v_more is null;
    v_found := v_found || v_more;
  end loop;
  return v_found;
end $$;

create or replace function retoma.exclude_jobs(p_jobs retoma.job_key[], p_others retoma.job_key[]) returns retoma.job_key[] immutable language sql as $$
  select array(select j from unnest(p_jobs) j
                where not exists (select from unnest(p_others) o where o.step = j.step and (o.item is null or o.item = j.item)));
$$;

-- A person's result may be all that an ended run lacked. The run passes through `running`, because an ended run does not
-- change.
create or replace function retoma.recompute_final_state(p_now timestamptz, p_run retoma.runs) returns void language plpgsql as $$
declare
  v_failed boolean := retoma.has_unresolved_failures(p_run.id);
begin
  if p_run.state = 'failed' and not exists (select from retoma.jobs_without_result(p_run) l join retoma.edges g
                                              on g.version = p_run.version and g.from_step = l.step and g.edge_kind = 'end') then
    -- Nothing that it was for is missing.
    update retoma.runs set state = 'running', ended_at = null, final_state = 'completed' where id = p_run.id;
    perform retoma.close_stopped_runs(p_now, array[p_run.id]);
  elsif p_run.state in ('completed', 'completed_with_errors') and (p_run.state = 'completed') = v_failed then
    update retoma.runs set state = 'running', ended_at = null where id = p_run.id;
    update retoma.runs
       set state = case when v_failed then 'completed_with_errors' else 'completed' end::retoma.run_state, has_errors = v_failed,
           ended_at = p_run.ended_at
     where id = p_run.id;
  end if;
end $$;

-- Refuse to run a job twice at the same time: the caller waits for it, or decides its review.
create or replace function retoma.refuse_if_busy(
  p_run retoma.runs, p_jobs retoma.job_key[], p_affected retoma.job_key[], p_open retoma.job_key[], p_force boolean) returns void
language plpgsql as $$
declare
  v_step text;
begin
  select j.step into v_step
    from retoma.jobs j
    join unnest(p_affected) a on a.step = j.step and (a.item is null or a.item = j.item)
   where j.run = p_run.id and (j.state = 'running' or j.state = 'parked' and not j.stopping and not retoma.waits_for_review(j)) and not p_force
   limit 1;
  -- A target is created when its only dependency ends. If that is running, the wrong revision would create it.
  if v_step is null then
    select o.step into v_step
      from unnest(p_jobs) t
      join retoma.steps s on s.version = p_run.version and s.step = t.step and s.created_on = 'dependency'
      join retoma.edges g on g.version = p_run.version and g.to_step = t.step and g.edge_kind = 'create'
      join unnest(p_open) o on o.step = g.from_step and (not g.same_item or o.item is not distinct from t.item)
     where not exists (select from unnest(p_affected) a where a.step = o.step and a.item is not distinct from o.item)
     limit 1;
  end if;
  -- The same holds for an item whose list is about to rerun.
  if v_step is null then
    select t.step into v_step
      from unnest(p_jobs) t
      join unnest(p_open) o on o.step = t.step and o.item is null
     where not exists (select from unnest(p_affected) a where a.step = t.step and a.item is null)
     limit 1;
  end if;
  if v_step is not null then
    raise exception '%', v_step using errcode = 'RT004';
  end if;
end $$;

-- Refuse to rerun a shared dependency while the list of the items that share it reruns: an earlier revision would create them.
create or replace function retoma.refuse_if_new_items_share_it(p_run retoma.runs, p_jobs retoma.job_key[], p_open retoma.job_key[]) returns void
language plpgsql as $$
declare
  v_step text := (
    select o.step from unnest(p_jobs) j
      join retoma.edges g on g.version = p_run.version and g.from_step = j.step and g.edge_kind = 'share'
      join unnest(p_open) o on o.step = g.to_step and o.item is null
     where not exists (select from unnest(p_jobs) a where a.step = o.step and a.item is null)
     limit 1);
begin
  if v_step is not null then
    raise exception '%', v_step using errcode = 'RT004';
  end if;
end $$;

-- Refuse a person's result for a job that is about to rerun, or for a list that has items.
create or replace function retoma.refuse_if_rerun_pending(p_run retoma.runs, p_step text, p_item text) returns void language plpgsql as $$
begin
  if exists (select from retoma.edges g where g.version = p_run.version and g.from_step = p_step and g.edge_kind = 'expand') then
    raise exception 'its list already has items' using errcode = 'RT003';
  elsif p_run.ended_at is null and exists (
      select from retoma.current_jobs(p_run.id) s
        join retoma.pending_reruns l on l.run = s.run and l.step = s.step and l.item in (s.item, '') and l.revision > s.revision
       where s.step = p_step and s.item = p_item) then
    raise exception '%', p_step using errcode = 'RT004';
  end if;
end $$;

-- Results whose inputs are no longer current.
create or replace function retoma.stale_jobs(p_run uuid) returns setof retoma.job_key stable language sql as $$
  with current_jobs as materialized (
    select * from retoma.current_jobs(p_run)
  )
  select distinct s.run, s.step, s.item, s.revision
    from current_jobs s
    join retoma.reads d on d.version = s.version and d.step = s.step
    join current_jobs n on n.step = d.from_step and (d.what <> 'result of the item' or n.item = s.item)
   where s.state = 'succeeded' and n.state = 'succeeded' and n.revision > s.revision;
$$;

-- The previous result of a job that reruns with the same inputs and is not a target. Null if it must run.
create or replace function retoma.reusable_result(p_run uuid, p_step text, p_item text, p_revision int, out o_output json, out o_revision int)
stable language sql as $$
  select f.output, f.revision
    from (select j.* from retoma.jobs j
           where j.run = p_run and j.step = p_step and j.item = p_item and j.revision < p_revision and j.state <> 'cancelled'
           order by j.revision desc limit 1) f
   cross join lateral retoma.job_parameters(p_run, p_step, p_item, f.version, null, f.revision) before
   cross join lateral retoma.job_parameters(p_run, p_step, p_item, f.version, null, p_revision) now
   where f.state = 'succeeded'
     and exists (select from retoma.pending_reruns m
                  where m.run = p_run and m.revision = p_revision and m.step = p_step and m.item in (p_item, ''))
     -- Nor was it a target since then without a result.
     and not exists (select from retoma.pending_reruns m
                      where m.run = p_run and m.revision > f.revision and m.revision <= p_revision
                        and m.step = p_step and m.item in (p_item, '') and m.target)
     and before.item_value::text is not distinct from now.item_value::text and before.results::text[] = now.results::text[]
     and ('"TOO_LARGE"' = any (now.results::text[])) is not true
     -- No dependency that it does not read has run again.
     and not exists (select from retoma.edges g
                      join retoma.jobs n on n.run = p_run and n.step = g.from_step and n.revision > f.revision and n.revision <= p_revision
                     where g.version = f.version and g.to_step = p_step and g.via = '' and g.edge_kind <> 'expand'
                       and not exists (select from retoma.reads d where d.version = f.version and d.step = p_step and d.from_step = g.from_step)
                       and not exists (select from retoma.pending_reruns m
                                        where m.run = p_run and m.revision = n.revision and m.step = n.step and m.item = n.item
                                          and m.reused_from is not null));
$$;

-- What the worker of a job needs to know: its previous result, a person's feedback, and a person's decision.
create or replace function retoma.previous_work(
  p_run uuid, p_step text, p_item text, p_revision int,
  out o_reused json, out o_previous_result json, out o_feedback json, out o_decision text, out o_value json)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_from int;
  v_previous_revision int;
begin
  select r.o_output, r.o_revision into o_reused, v_from from retoma.reusable_result(p_run, p_step, p_item, p_revision) r;
  if v_from is not null then
    update retoma.pending_reruns set reused_from = v_from
     where run = p_run and revision = p_revision and step = p_step and item = p_item;
  end if;
  select j.output, j.revision into o_previous_result, v_previous_revision from retoma.jobs j
   where j.run = p_run and j.step = p_step and j.item = p_item and j.revision < p_revision and j.state = 'succeeded'
   order by j.revision desc limit 1;
  -- Feedback applies until the job has a result: a failed job reruns with it.
  select m.feedback into o_feedback from retoma.pending_reruns m
   where m.run = p_run and m.step = p_step and m.item = p_item and m.feedback is not null
     and m.revision > coalesce(v_previous_revision, 0) and m.revision <= p_revision
   order by m.revision desc limit 1;
  select v.state, coalesce(v.value, v.reason -> 'value') into o_decision, o_value from retoma.reviews v
   where v.run = p_run and v.step = p_step and v.item = p_item and v.revision = p_revision
     and v.applied_at is not null and v.state in ('approved', 'expired');
end $$;

-- Log an action on a run, and who requested it.
create or replace function retoma.log_action(p_now timestamptz, p_run uuid, p_revision int, p_by text, p_data jsonb)
returns void language sql as $$
  insert into retoma.events (run, at, revision, kind, data)
  values (p_run, p_now, p_revision, 'action', (jsonb_build_object('by', p_by) || p_data)::json);
$$;

-- The recorded answer of an action on this run or review under this key, or null. Raises RT005 if the key came with another
-- request.
create or replace function retoma.find_answer(p_subject uuid, p_action_key jsonb) returns jsonb language plpgsql as $$
declare
  v_known retoma.action_keys;
begin
  select * into v_known from retoma.action_keys where subject = p_subject and key = p_action_key ->> 'key';
  if v_known.digest <> p_action_key ->> 'digest' then
    raise exception '%', p_action_key ->> 'key' using errcode = 'RT005';
  end if;
  return v_known.answer;
end $$;

-- Record the answer of an action in its transaction, so every repetition gets the same answer.
create or replace function retoma.record_answer(p_subject uuid, p_action_key jsonb, p_answer jsonb) returns void language sql as $$
  insert into retoma.action_keys (subject, key, digest, answer, created_at)
  select p_subject, p_action_key ->> 'key', p_action_key ->> 'digest', p_answer, retoma.now()
   where p_action_key ->> 'key' is not null
      on conflict do nothing;
$$;

create or replace function retoma.record_revision_answer(p_run uuid, p_action_key jsonb, p_revision int, p_jobs int) returns void language sql as $$
  select retoma.record_answer(p_run, p_action_key, jsonb_build_object('revision', p_revision, 'jobs', p_jobs));
$$;

-- The revision and the number of jobs of an action that was done under this key. The caller holds the run.
create or replace function retoma.find_answered_revision(p_run uuid, p_action_key jsonb, out o_revision int, out o_jobs int) language sql as $$
  select (answer ->> 'revision')::int, (answer ->> 'jobs')::int
    from retoma.find_answer(p_run, p_action_key) answer;
$$;

-- Jobs without a result in an ended run: those that failed, and those that the stop prevented. A job that ended while the run
-- was stopping has created no successor: the successor is missing, or, if the job returned a list, it must run again.
create or replace function retoma.jobs_without_result(p_run retoma.runs) returns setof retoma.job_key stable language sql as $$
  with current_jobs as materialized (
    select * from retoma.current_jobs(p_run.id)
  )
  select s.run, s.step, s.item, s.revision from current_jobs s
   where s.state in ('failed', 'quarantined') and not retoma.is_resolved_by_person(s) or s.state = 'cancelled' and p_run.state = 'failed'
  union
  select s.run, case g.edge_kind when 'create' then g.to_step else s.step end, s.item, s.revision
    from current_jobs s
    join retoma.edges g on g.version = p_run.version and g.from_step = s.step and g.edge_kind in ('create', 'expand')
   where s.state = 'succeeded' and s.stopping and p_run.state = 'failed'
     and not exists (select from current_jobs t where t.step = g.to_step and (t.item = s.item or g.edge_kind = 'expand'));
$$;

-- Rerun what has no result in an ended run. With `p_step`, only that step; with `p_items`, only these items of it. Returns the
-- revision and the number of jobs. A repetition while the rerun is in progress gets the same answer.
create or replace function retoma.rerun_failed(
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], p_action_key jsonb, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_action jsonb := jsonb_build_object('action', 'rerun_failed', 'step', p_step, 'items', p_items);
  v_run retoma.runs;
  v_jobs retoma.job_key[];
begin
  v_run := retoma.lock_run_for_action(p_run, p_tenant);
  select * into o_revision, o_jobs from retoma.find_answered_revision(v_run.id, p_action_key);
  if v_run.id is null or o_revision is not null then
    return;
  end if;
  if v_run.state not in ('completed', 'completed_with_errors', 'failed') then
    select v_run.revision, (e.data ->> 'jobs')::int into o_revision, o_jobs
      from retoma.events e
     where e.run = p_run and e.kind = 'action' and e.revision = v_run.revision and e.data::jsonb @> v_action
       and v_run.final_state is null and v_run.ended_at is null
     order by e.id desc limit 1;
    if not found then
      raise exception '%', v_run.state using errcode = 'RT002';
    end if;
    perform retoma.record_revision_answer(p_run, p_action_key, o_revision, o_jobs);
    return;
  end if;
  select array_agg(l order by l.step, l.item) into v_jobs
    from retoma.jobs_without_result(v_run) l
   where (p_step is null or l.step = p_step) and (p_items is null or l.item = any (p_items));
  o_jobs := coalesce(cardinality(v_jobs), 0);
  o_revision := v_run.revision + (o_jobs > 0)::int;
  if o_jobs > 0 then
    perform retoma.log_action(v_now, p_run, o_revision, p_by, v_action || p_action_key || jsonb_build_object('jobs', o_jobs));
    perform retoma.rerun_jobs(v_now, v_run, v_jobs, '{}', null, false, false);
  end if;
  perform retoma.record_revision_answer(p_run, p_action_key, o_revision, o_jobs);
end $$;

-- Replace a job's result by a person's. Its dependents rerun, and in a failed run also everything else without a result; with
-- `p_keep_dependents` they only become stale.
create or replace function retoma.edit_result(
  p_run uuid, p_tenant int, p_by text, p_step text, p_item text, p_value json, p_keep_dependents boolean, p_action_key jsonb,
  out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.lock_run_for_action(p_run, p_tenant);
  v_edited retoma.job_key[];
begin
  select * into o_revision, o_jobs from retoma.find_answered_revision(v_run.id, p_action_key);
  if o_revision is not null then
    return;
  end if;
  perform retoma.refuse_unless_actionable(v_run, p_keep_dependents);
  perform retoma.refuse_if_rerun_pending(v_run, p_step, p_item);
  v_edited := retoma.record_manual_results(v_now, v_run, p_by, array[p_step], array[p_item], 'succeeded', null, p_value);
  if v_edited is null then
    return;
  end if;
  o_revision := v_run.revision + 1;
  if p_keep_dependents then
    update retoma.runs set revision = o_revision where id = p_run;
    perform retoma.recompute_final_state(v_now, v_run);
    o_jobs := 0;
  else
    o_jobs := retoma.rerun_jobs(v_now, v_run, retoma.other_jobs_without_result(v_run, v_edited), v_edited, null, false, false);
  end if;
  perform retoma.log_action(v_now, p_run, o_revision, p_by, p_action_key || jsonb_build_object(
    'action', 'edit', 'step', p_step, 'item', p_item, 'jobs', o_jobs));
  perform retoma.record_revision_answer(p_run, p_action_key, o_revision, o_jobs);
end $$;

-- Rerun steps, or these items of them, and their dependents; with `p_stale`, all results with outdated inputs. With
-- `p_isolated` the dependents stay as they are; with `p_no_reuse` no job keeps its result.
create or replace function retoma.rerun_steps(
  p_run uuid, p_tenant int, p_by text, p_reason text, p_steps text[], p_items text[], p_stale boolean, p_isolated boolean, p_no_reuse boolean,
  p_action_key jsonb, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.lock_run_for_action(p_run, p_tenant);
  v_jobs retoma.job_key[];
begin
  select * into o_revision, o_jobs from retoma.find_answered_revision(v_run.id, p_action_key);
  if v_run.id is null or o_revision is not null then
    return;
  end if;
  perform retoma.refuse_unless_actionable(v_run, p_isolated);
  v_jobs := case when p_stale then array(select s from retoma.stale_jobs(p_run) s) else retoma.find_rerun_targets(v_run, p_steps, p_items) end;
  o_jobs := coalesce(cardinality(v_jobs), 0);
  o_revision := v_run.revision + (o_jobs > 0)::int;
  perform retoma.record_revision_answer(p_run, p_action_key, o_revision, o_jobs);
  if o_jobs = 0 then
    return;
  end if;
  perform retoma.log_action(v_now, p_run, o_revision, p_by, p_action_key || jsonb_strip_nulls(jsonb_build_object(
    'action', 'rerun', 'steps', p_steps, 'items', p_items, 'stale', p_stale, 'isolated', p_isolated, 'no_reuse', p_no_reuse, 'reason', p_reason,
    'jobs', o_jobs)));
  if p_isolated then
    perform retoma.rerun_jobs_isolated(v_now, v_run, v_jobs);
  else
    if p_stale and not p_no_reuse then
      -- Not targets: a job with the same inputs keeps its result.
      insert into retoma.pending_reruns (run, revision, step, item, target)
      select p_run, o_revision, j.step, j.item, false from unnest(v_jobs) j;
    end if;
    perform retoma.rerun_jobs(v_now, v_run, v_jobs || retoma.other_jobs_without_result(v_run, v_jobs), '{}', null, p_no_reuse, false);
  end if;
end $$;

-- Rerun these jobs without their dependents. The run then ends as it had, with errors or without.
create or replace function retoma.rerun_jobs_isolated(p_now timestamptz, p_run retoma.runs, p_jobs retoma.job_key[]) returns void language plpgsql as $$
begin
  if exists (select from unnest(p_jobs) j join retoma.edges g on g.version = p_run.version and g.from_step = j.step and g.edge_kind = 'expand') then
    raise exception 'its list already has items' using errcode = 'RT003';
  end if;
  insert into retoma.pending_reruns (run, revision, step, item)
  select p_run.id, p_run.revision + 1, j.step, j.item from unnest(p_jobs) j;
  insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, created_at, input, pool, isolated_rerun)
  select s.run, s.step, s.item, p_run.revision + 1, s.version, s.tenant, t.queue, s.rank, s.position, 'ready', p_now, s.input, t.pool, true
    from unnest(p_jobs) j
    join retoma.current_jobs(p_run.id) s on s.step = j.step and s.item = j.item
    join retoma.steps t on t.version = s.version and t.step = s.step;
  update retoma.runs r
     set revision = r.revision + 1, state = 'running', ended_at = null, final_state = p_run.state, deadline_at = p_now + r.deadline,
         watch_at = p_now + least((select stuck_after from retoma.versions where id = r.version), r.deadline)
   where r.id = p_run.id;
  perform retoma.refresh_run_state(array[p_run.id]);
end $$;

-- Cancel a run once for each key. Returns the state that the first call returned.
create or replace function retoma.cancel_once(p_run uuid, p_tenant int, p_by text, p_action_key jsonb) returns text language plpgsql as $$
declare
  v_known jsonb;
  v_state text;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if not exists (select from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant)) then
    return null;
  end if;
  v_known := retoma.find_answer(p_run, p_action_key);
  if v_known is not null then
    return v_known ->> 'state';
  end if;
  v_state := retoma.cancel_run(p_run, p_tenant, p_by);
  perform retoma.record_answer(p_run, p_action_key, jsonb_build_object('state', v_state));
  return v_state;
end $$;

-- Resume a stuck run, or rerun what a failed run lacks, once for each key. Returns the state that the first call returned, and
-- whether it did anything.
create or replace function retoma.resume_once(
  p_run uuid, p_tenant int, p_by text, p_pause interval, p_grace interval, p_action_key jsonb, out o_state text, out o_done boolean)
language plpgsql as $$
declare
  v_run retoma.runs := retoma.lock_run_for_action(p_run, p_tenant);
  v_known jsonb := retoma.find_answer(v_run.id, p_action_key);
begin
  if v_run.id is null or v_known is not null then
    o_state := v_known ->> 'state';
    o_done := (v_known ->> 'done')::boolean;
    return;
  end if;
  o_state := retoma.resume_run(p_run, p_tenant, p_by, false, p_pause, p_grace);
  if o_state = 'failed' then
    perform retoma.rerun_failed(p_run, p_tenant, p_by, null, null, jsonb_build_object('key', 'resume ' || (p_action_key ->> 'key'), 'digest', p_action_key ->> 'digest'));
    select state into o_state from retoma.runs where id = p_run;
    o_done := true;
  else
    o_done := v_run.ended_at is null and v_run.state <> 'cancelling';
  end if;
  if o_done then
    perform retoma.record_answer(p_run, p_action_key, jsonb_build_object('state', o_state, 'done', true));
  end if;
end $$;

-- Create a run with another input that shares the results of an ended one, except for these steps and everything downstream.
-- Its revision 1 copies that run. Its key is one of the keys of starts: a repetition returns the first fork.
create or replace function retoma.fork_run(
  p_run uuid, p_tenant int, p_by text, p_new uuid, p_input json, p_title text, p_steps text[], p_action_key jsonb,
  out o_run uuid, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.lock_run_for_action(p_run, p_tenant);
  v_new retoma.runs;
  v_jobs retoma.job_key[];
  v_pipeline text;
begin
  if v_run.id is null then
    return;
  end if;
  select pipeline into v_pipeline from retoma.versions where id = v_run.version;
  insert into retoma.start_keys (tenant, pipeline, key, run, digest, created_at)
  values (v_run.tenant, v_pipeline, p_action_key ->> 'key', p_new, decode(p_action_key ->> 'digest', 'hex'), v_now)
      on conflict do nothing
  returning run into o_run;
  if o_run is null then
    select run into o_run from retoma.start_keys
     where tenant = v_run.tenant and pipeline = v_pipeline and key = p_action_key ->> 'key' and digest = decode(p_action_key ->> 'digest', 'hex');
    if o_run is null then
      raise exception '%', p_action_key ->> 'key' using errcode = 'RT005';
    end if;
    select * into o_revision, o_jobs from retoma.find_answered_revision(o_run, p_action_key);
    return;
  elsif v_run.ended_at is null then
    raise exception '%', v_run.state using errcode = 'RT002';
  end if;
  insert into retoma.runs (id, tenant, version, state, open_sinks, has_errors, input, created_at, run_at, ended_at, watch_at, resumes, retries,
                           deadline, forked_from, title)
  select p_new, r.tenant, r.version, case when r.state in ('completed', 'completed_with_errors') then r.state else 'failed' end, 0,
         r.has_errors, p_input, v_now, v_now, v_now, 'infinity', r.resumes, r.retries, r.deadline, r.id, p_title
    from retoma.runs r where r.id = p_run
  returning * into v_new;
  insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, worker, stopping, created_at, ended_at,
                           code, input, output, author)
  select p_new, s.step, s.item, 1, s.version, s.tenant, s.queue, s.rank, s.position,
         s.state, 0, s.stopping, v_now, v_now, s.code, s.input, s.output, s.author
    from retoma.current_jobs(p_run) s;
  insert into retoma.events (run, at, revision, kind, data) values (p_new, v_now, 1, 'start', json_build_object('forked_from', p_run));
  v_jobs := coalesce(retoma.find_rerun_targets(v_new, p_steps, null), '{}');
  v_jobs := v_jobs || retoma.other_jobs_without_result(v_new, v_jobs);
  -- A stale result is not shared.
  v_jobs := v_jobs || array(select (p_new, s.step, s.item, 1)::retoma.job_key from retoma.stale_jobs(p_run) s
                             where not exists (select from unnest(v_jobs) j where j.step = s.step and j.item = s.item));
  o_revision := 1 + (cardinality(v_jobs) > 0)::int;
  o_jobs := cardinality(v_jobs);
  perform retoma.log_action(v_now, p_new, o_revision, p_by, p_action_key || jsonb_build_object(
    'action', 'fork', 'from', p_run, 'steps', p_steps, 'jobs', o_jobs));
  perform retoma.record_revision_answer(p_new, p_action_key, o_revision, o_jobs);
  if o_jobs > 0 then
    perform retoma.rerun_jobs(v_now, v_new, v_jobs, '{}', null, false, false);
  end if;
end $$;

-- Skip items of a step in an ended run, and everything that only they would produce.
create or replace function retoma.skip_items(
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], p_action_key jsonb, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.lock_run_for_action(p_run, p_tenant);
  v_edited retoma.job_key[];
begin
  select * into o_revision, o_jobs from retoma.find_answered_revision(v_run.id, p_action_key);
  if o_revision is not null then
    return;
  end if;
  perform retoma.refuse_unless_actionable(v_run, true);
  with recursive chain (step) as (
    select p_step collate "C"
    union
    select g.to_step from chain c join retoma.edges g on g.version = v_run.version and g.from_step = c.step and g.same_item
  )
  select retoma.record_manual_results(v_now, v_run, p_by, array_agg(c.step), array_agg(i.item), 'skipped', 'NOT_WANTED', null) into v_edited
    from chain c, unnest(p_items) as i (item);
  if v_edited is null then
    return;
  end if;
  o_revision := v_run.revision + 1;
  o_jobs := retoma.rerun_jobs(v_now, v_run, retoma.other_jobs_without_result(v_run, v_edited), v_edited, null, false, false);
  perform retoma.log_action(v_now, p_run, o_revision, p_by, p_action_key || jsonb_build_object(
    'action', 'skip', 'step', p_step, 'items', to_jsonb(p_items), 'jobs', o_jobs));
  perform retoma.record_revision_answer(p_run, p_action_key, o_revision, o_jobs);
end $$;

-- Refuse actions on a run that is stopping or was ended by a person; with `p_over`, on any run that has not ended.
create or replace function retoma.refuse_unless_actionable(p_run retoma.runs, p_over boolean) returns void language plpgsql as $$
begin
  if p_run.state in ('pending', 'cancelling', 'cancelled', 'rejected')
     or p_run.id is not null and p_run.ended_at is null and (p_over or p_run.final_state is not null) then
    raise exception '%', p_run.state using errcode = 'RT002';
  end if;
end $$;

-- Insert a person's rows for those of these jobs that exist. Returns their keys.
create or replace function retoma.record_manual_results(
  p_now timestamptz, p_run retoma.runs, p_by text, p_step text[], p_item text[], p_state retoma.job_state, p_code text, p_value json)
returns retoma.job_key[] language sql as $$
  with inserted as (
    insert into retoma.jobs as j (run, step, item, revision, version, tenant, queue, rank, position, state, worker, created_at,
                                  ended_at, code, input, output, author)
    select s.run, s.step, s.item, p_run.revision + 1, s.version, s.tenant, s.queue, s.rank, s.position, p_state, 0, p_now,
           p_now, p_code, s.input, p_value, p_by
      from retoma.current_jobs(p_run.id) s
      join unnest(p_step, p_item) as w (step, item) on w.step = s.step and w.item = s.item
     where s.state not in ('waiting', 'ready', 'running', 'parked')
    returning j.run, j.step, j.item, j.revision
  )
  select array_agg((run, step, item, revision)::retoma.job_key) from inserted;
$$;

-- The other jobs that a failed run must run to continue.
create or replace function retoma.other_jobs_without_result(p_run retoma.runs, p_edited retoma.job_key[]) returns retoma.job_key[] stable language sql as $$
  select coalesce(array_agg(l), '{}')
    from retoma.jobs_without_result(p_run) l
   where p_run.state = 'failed' and not exists (select from unnest(p_edited) g where g.step = l.step and g.item = l.item);
$$;
