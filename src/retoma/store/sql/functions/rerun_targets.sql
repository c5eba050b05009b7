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
