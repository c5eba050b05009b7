-- The jobs that stand for a run: of every step and item the latest. Items that are no longer on their list are left out.
create or replace function retoma.standing(p_run uuid) returns setof retoma.jobs stable language sql as $$
  select * from retoma.stood(p_run, retoma.latest());
$$;

-- Those that stood for it through a revision.
create or replace function retoma.stood(p_run uuid, p_through int) returns setof retoma.jobs stable language sql as $$
  with lists as materialized (
    select s.step, retoma.list_revision(p_run, s.version, s.step, p_through) as revision
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

-- A run that is acted on, with every job that is yet to end held fast, so that what is made anew now and what ends just now
-- see each other; null if there is no such run of this tenant.
create or replace function retoma.locked_live(p_run uuid, p_tenant int) returns retoma.runs language plpgsql as $$
declare
  v_run retoma.runs;
  v_before text;
  v_after text;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  loop
    v_before := v_after;
    -- First what runs or may, and then what waits for it, each by key, as those do that end jobs.
    perform from retoma.jobs where run = p_run and state in ('running', 'parked', 'ready') order by step, item, revision for update;
    perform from retoma.jobs where run = p_run and state = 'waiting' order by step, item, revision for update;
    -- What ended while we waited has made others.
    select md5(string_agg(format('%s %s %s %s', j.step, j.item, j.revision, j.state), ',' order by j.step, j.item, j.revision))
      into v_after from retoma.jobs j where j.run = p_run and j.state in ('waiting', 'ready', 'running', 'parked');
    exit when v_after is not distinct from v_before;
  end loop;
  select * into v_run from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant) for update;
  return v_run;
end $$;

-- The jobs of these steps, or of these items of them.
create or replace function retoma.targets_of(p_run retoma.runs, p_steps text[], p_items text[]) returns retoma.handle[] stable language sql as $$
  select array_agg((s.run, s.step, s.item, s.revision)::retoma.handle order by s.step, s.item)
    from retoma.standing(p_run.id) s
   where s.step = any (p_steps) and (p_items is null or s.item = '' or s.item = any (p_items));
$$;

-- Everything that must be made anew when these jobs are: they, and all that can be reached from them. An item that is null
-- stands for all items of a step whose list is yet to come.
create or replace function retoma.affected_by(p_run uuid, p_version int, p_jobs retoma.handle[])
returns table (step text, item text) stable language sql as $$
  with recursive standing as materialized (
    select s.step, s.item from retoma.standing(p_run) s
  ), reached (step, item) as (
    select j.step collate "C", j.item collate "C" from unnest(p_jobs) j
    union
    select g.to_step, t.item
      from reached r
      join retoma.edges g on g.version = p_version and g.from_step = r.step and g.act <> 'end' and g.via = ''
     cross join lateral (
       select case when g.same_item then r.item else '' collate "C" end as item where g.act in ('make', 'count')
       union all
       select s.item from standing s where g.act = 'share' and s.step = g.to_step
       union all
       select null collate "C" where g.act = 'expand') t
  )
  select r.step, r.item from reached r;
$$;

-- Whether a person has given what was to be made of this failed job's result for its item.
create or replace function retoma.is_made_good(p_job retoma.jobs) returns boolean stable language sql as $$
  with recursive chain (step) as (
    select p_job.step
    union
    select g.to_step from chain c join retoma.edges g on g.version = p_job.version and g.from_step = c.step and g.same_item
  )
  select exists (select from chain c
                   join retoma.jobs t on t.run = p_job.run and t.step = c.step and t.item = p_job.item
                  where t.step <> p_job.step and t.author is not null and t.state = 'succeeded' and t.revision >= p_job.revision);
$$;

-- What will be yet to end when these are made anew: they, and what is under way or still to come. An item that is null stands
-- for all items of a step whose list is yet to come.
create or replace function retoma.yet_to_end(p_run retoma.runs, p_affected retoma.handle[]) returns retoma.handle[] stable language sql as $$
  with affected as materialized (
    select a.step, a.item from unnest(p_affected) a
  ), steps as materialized (
    select s.* from retoma.steps s where s.version = p_run.version and p_run.ended_at is null
  ), standing as materialized (
    select s.step, s.item, s.revision, s.state in ('waiting', 'ready', 'running', 'parked') or exists (
             select from retoma.remakes l
              where l.run = p_run.id and l.step = s.step and l.item = s.item and l.revision > s.revision) as open
      from retoma.standing(p_run.id) s
     where p_run.ended_at is null
  ), plain as materialized (
    select s.step from steps s
     where not s.each and not exists (select from affected a where a.step = s.step)
       and not exists (select from standing t where t.step = s.step and not t.open)
  ), lists as materialized (
    select s.step from steps s join plain p on p.step = s.source
  ), items as (
    select s.step, k.item
      from steps s
      join standing k on k.step = s.item_from
      left join standing t on t.step = s.step and t.item = k.item
      left join affected a on a.step = s.step and (a.item is null or a.item = k.item)
     where s.each and a.step is null and coalesce(t.open, true) and not exists (select from lists l where l.step = s.step)
  )
  select array_agg((p_run.id, o.step, o.item, 0)::retoma.handle)
    from (select step, item from affected
          union select step, '' from plain
          union select step, null from lists
          union select step, item from items) o;
$$;

-- What was being made and must be made of other things now: late results are refused, and nobody need decide about it.
create or replace function retoma.supersede(p_now timestamptz, p_run uuid, p_affected retoma.handle[]) returns void language plpgsql as $$
declare
  v_live retoma.jobs[] := array(
    select j from retoma.jobs j
     where j.run = p_run and j.state in ('waiting', 'ready', 'running', 'parked')
       and exists (select from unnest(p_affected) a where a.step = j.step and (a.item is null or a.item = j.item)));
begin
  perform retoma.stop_asking(p_now, array_agg((j.run, j.step, j.item, j.revision)::retoma.handle), 'SUPERSEDED')
     from unnest(v_live) j where retoma.is_asking(j);
  -- What goes on outside keeps its slots until it has ended there.
  update retoma.jobs j set ending = true from unnest(v_live) l
   where j.run = l.run and j.step = l.step and j.item = l.item and j.revision = l.revision and j.state = 'parked';
  update retoma.outside o set next_at = p_now from unnest(v_live) l
   where o.run = l.run and o.step = l.step and o.item = l.item and o.revision = l.revision and o.ended_at is null and l.state = 'parked';
  update retoma.jobs j
     set state = 'cancelled', code = 'SUPERSEDED', worker = 0, fence = j.fence + 1, ready_at = null, ended_at = p_now
    from unnest(v_live) l
   where j.run = l.run and j.step = l.step and j.item = l.item and j.revision = l.revision
     and j.state in ('waiting', 'ready', 'running');
  perform retoma.release(array_agg((l.run, l.step, l.item, l.revision)::retoma.handle)) from unnest(v_live) l where l.state in ('ready', 'running');
end $$;

-- Make these jobs anew at the run's next revision, and all that depends on them and on those that a person has `p_given` a
-- row of that revision; the run goes on. A job whose needs stay as they are is made at once, the rest as its needs end, by
-- the same means as the first time. What is no target keeps its result if it would be made of the same, unless `p_fresh`.
-- The caller holds the run as `locked_live` does; with `p_force` what runs is superseded. Gives how many were made at once.
create or replace function retoma.remake(
  p_now timestamptz, p_run retoma.runs, p_jobs retoma.handle[], p_given retoma.handle[], p_feedback jsonb, p_fresh boolean,
  p_force boolean) returns int
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
language plpgsql as $$
declare
  v_revision int := p_run.revision + 1;
  v_affected retoma.handle[];
  v_open retoma.handle[];
  v_sinks int;
  v_made int;
begin
  if exists (select from unnest(p_given) j join retoma.edges g on g.version = p_run.version and g.from_step = j.step and g.act = 'expand') then
    raise exception 'its list has items already' using errcode = 'RT003';
  end if;
  if p_given <> '{}' then
    p_jobs := retoma.without(p_jobs, retoma.only_for(p_run.version, p_given));
  end if;
  select array_agg((p_run.id, a.step, a.item, 0)::retoma.handle) into v_affected
    from retoma.affected_by(p_run.id, p_run.version, p_jobs || p_given) a
   where not exists (select from unnest(p_given) g where g.step = a.step and g.item = a.item);
  -- Single items of a list that is made anew are made by it, if they are still on it.
  v_affected := array(select a from unnest(v_affected) a
                       where a.item is null or not exists (select from unnest(v_affected) n where n.step = a.step and n.item is null));
  v_open := retoma.yet_to_end(p_run, v_affected);
  if p_run.ended_at is null then
    perform retoma.refuse_if_at_work(p_run, p_jobs, v_affected, v_open, p_force);
    perform retoma.refuse_if_shared_soon(p_run, v_affected || p_given, v_open);
    perform retoma.supersede(p_now, p_run.id, v_affected);
  else
    -- What was to follow when the run ended will not.
    delete from retoma.remakes l
     where l.run = p_run.id and l.revision < v_revision
       and not exists (select from retoma.jobs j where j.run = l.run and j.step = l.step and j.item = l.item and j.revision = l.revision);
  end if;

  -- Before the jobs: whether a person is asked depends on it.
  insert into retoma.remakes (run, revision, step, item, target, feedback)
  select p_run.id, v_revision, a.step, coalesce(a.item, ''), p_fresh or t.step is not null, case when t.step is not null then p_feedback end
    from (select step, item from unnest(v_affected)
          union select t.step, t.item from unnest(p_jobs) t) a
    left join unnest(p_jobs) t on t.step = a.step and t.item = a.item
      on conflict do nothing;

  with affected as materialized (
    select a.step, a.item from unnest(v_affected) a
  ), open as materialized (
    select o.step, o.item from unnest(v_open) o
  ), needs as materialized (
    select g.from_step, g.to_step, g.same_item from retoma.edges g
     where g.version = p_run.version and g.via = '' and g.act in ('make', 'count', 'share')
  ), waits as materialized (
    select a.step, a.item,
           (select count(*) from needs n join open o on o.step = n.from_step where n.to_step = a.step and not n.same_item)
           + (select count(*) from needs n join open o on o.step = n.from_step and o.item = a.item
               where n.to_step = a.step and n.same_item) as left
      from affected a
     where a.item is not null
  ), former as materialized (
    select * from retoma.standing(p_run.id)
  ), made as (
    insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, waiting_on, created_at,
                             input, pool)
    select p_run.id, w.step, w.item, v_revision, p_run.version, p_run.tenant, s.queue,
           coalesce(f.rank, (extract(epoch from p_run.run_at) * 1000000)::bigint - s.head_start), coalesce(f.position, 0),
           case when w.left = 0 then 'ready' else 'waiting' end::retoma.job_state, w.left, p_now, f.input, s.pool
      from waits w
      join retoma.steps s on s.version = p_run.version and s.step = w.step
      left join former f on f.step = w.step and f.item = w.item
     -- A job with one need is made by that need's end.
     where w.left = 0 or s.born <> 'need'
     order by w.step, w.item
    returning 1
  )
  select (select count(*) from made),
         (select count(*) from retoma.edges g join open o on o.step = g.from_step
           where g.version = p_run.version and g.act = 'end' and g.via = '')
    into v_made, v_sinks;

  update retoma.runs r
     set revision = v_revision, open_sinks = v_sinks, ends_as = null,
         deadline_at = p_now + r.deadline,
         watch_at = p_now + least((select stuck_after from retoma.versions where id = r.version), r.deadline),
         state = case when v_sinks > 0 then 'running' else r.state end::retoma.run_state,
         with_errors = f.lacks,
         ended_at = case when v_sinks = 0 then r.ended_at end
    -- A failure that is not made good by this, nor by what is under way.
    from (select exists (select from retoma.standing(p_run.id) s
                          where s.state in ('failed', 'quarantined') and s.revision < v_revision and not retoma.is_made_good(s)
                            and not exists (select from unnest(v_open) a
                                             where a.step = s.step and (a.item = s.item or a.item is null))) as lacks) f
   where r.id = p_run.id;
  if v_sinks = 0 then
    perform retoma.judge_again(p_now, p_run);
  end if;
  perform retoma.restate(array[p_run.id]);
  return v_made;
end $$;

-- These jobs, and those whose results nothing but they would have used; without an item, all of a step.
create or replace function retoma.only_for(p_version int, p_jobs retoma.handle[]) returns retoma.handle[] stable language plpgsql as $$
declare
  v_found retoma.handle[] := p_jobs;
  v_more retoma.handle[];
begin
  loop
    select array_agg((null, c.step, c.item, 0)::retoma.handle) into v_more
      from (select distinct g.from_step as step, case when g.same_item then f.item when not s.each then '' end as item
              from unnest(v_found) f
              join retoma.edges g on g.version = p_version and g.to_step = f.step and g.act <> 'end'
              join retoma.steps s on s.version = p_version and s.step = g.from_step) c
     where not exists (select from unnest(v_found) f where f.step = c.step and (f.item is null or f.item = c.item))
       and not exists (select from retoma.edges g
                        where g.version = p_version and g.from_step = c.step
                          and (g.act = 'end' or not exists (
                                select from unnest(v_found) f
                                 where f.step = g.to_step and (f.item is null or f.item = case when g.same_item then c.item else '' end))));
    exit when v_more is null;
    v_found := v_found || v_more;
  end loop;
  return v_found;
end $$;

create or replace function retoma.without(p_jobs retoma.handle[], p_others retoma.handle[]) returns retoma.handle[] immutable language sql as $$
  select array(select j from unnest(p_jobs) j
                where not exists (select from unnest(p_others) o where o.step = j.step and (o.item is null or o.item = j.item)));
$$;

-- A person's word may be all that a run that is over had lacked. It goes the way of every run: what is over does not change.
create or replace function retoma.judge_again(p_now timestamptz, p_run retoma.runs) returns void language plpgsql as $$
declare
  v_failed boolean := retoma.has_failures(p_run.id);
begin
  if p_run.state = 'failed' and not exists (select from retoma.lacking(p_run) l join retoma.edges g
                                              on g.version = p_run.version and g.from_step = l.step and g.act = 'end') then
    -- It has all that it was for.
    update retoma.runs set state = 'running', ended_at = null, ends_as = 'completed' where id = p_run.id;
    perform retoma.close_runs(p_now, array[p_run.id]);
  elsif p_run.state in ('completed', 'completed_with_errors') and (p_run.state = 'completed') = v_failed then
    update retoma.runs set state = 'running', ended_at = null where id = p_run.id;
    update retoma.runs
       set state = case when v_failed then 'completed_with_errors' else 'completed' end::retoma.run_state, with_errors = v_failed,
           ended_at = p_run.ended_at
     where id = p_run.id;
  end if;
end $$;

-- What is under way is not made twice at once: who wants it again waits for it, or decides about it where it is reviewed.
create or replace function retoma.refuse_if_at_work(
  p_run retoma.runs, p_jobs retoma.handle[], p_affected retoma.handle[], p_open retoma.handle[], p_force boolean) returns void
language plpgsql as $$
declare
  v_step text;
begin
  select j.step into v_step
    from retoma.jobs j
    join unnest(p_affected) a on a.step = j.step and (a.item is null or a.item = j.item)
   where j.run = p_run.id and (j.state = 'running' or j.state = 'parked' and not j.ending and not retoma.is_asking(j)) and not p_force
   limit 1;
  -- A target is made when its one need ends; if that is under way, it would be made by the wrong revision.
  if v_step is null then
    select o.step into v_step
      from unnest(p_jobs) t
      join retoma.steps s on s.version = p_run.version and s.step = t.step and s.born = 'need'
      join retoma.edges g on g.version = p_run.version and g.to_step = t.step and g.act = 'make'
      join unnest(p_open) o on o.step = g.from_step and (not g.same_item or o.item is not distinct from t.item)
     where not exists (select from unnest(p_affected) a where a.step = o.step and a.item is not distinct from o.item)
     limit 1;
  end if;
  -- So would an item whose list is about to be made anew.
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

-- Nor is what items share made anew while their list is: they would be made of it, and by an earlier revision.
create or replace function retoma.refuse_if_shared_soon(p_run retoma.runs, p_jobs retoma.handle[], p_open retoma.handle[]) returns void
language plpgsql as $$
declare
  v_step text := (
    select o.step from unnest(p_jobs) j
      join retoma.edges g on g.version = p_run.version and g.from_step = j.step and g.act = 'share'
      join unnest(p_open) o on o.step = g.to_step and o.item is null
     where not exists (select from unnest(p_jobs) a where a.step = o.step and a.item is null)
     limit 1);
begin
  if v_step is not null then
    raise exception '%', v_step using errcode = 'RT004';
  end if;
end $$;

-- Nor is a person's word put in place of what is about to be made anew, or of a list that has items.
create or replace function retoma.refuse_if_to_come(p_run retoma.runs, p_step text, p_item text) returns void language plpgsql as $$
begin
  if exists (select from retoma.edges g where g.version = p_run.version and g.from_step = p_step and g.act = 'expand') then
    raise exception 'its list has items already' using errcode = 'RT003';
  elsif p_run.ended_at is null and exists (
      select from retoma.standing(p_run.id) s
        join retoma.remakes l on l.run = s.run and l.step = s.step and l.item in (s.item, '') and l.revision > s.revision
       where s.step = p_step and s.item = p_item) then
    raise exception '%', p_step using errcode = 'RT004';
  end if;
end $$;

-- Results that are made of something that is no longer current.
create or replace function retoma.stale(p_run uuid) returns setof retoma.handle stable language sql as $$
  with standing as materialized (
    select * from retoma.standing(p_run)
  )
  select distinct s.run, s.step, s.item, s.revision
    from standing s
    join retoma.reads d on d.version = s.version and d.step = s.step
    join standing n on n.step = d.from_step and (d.what <> 'result of the item' or n.item = s.item)
   where s.state = 'succeeded' and n.state = 'succeeded' and n.revision > s.revision;
$$;

-- The former result of a job that is to be made anew of the very same, and is no target; null if it must be made.
create or replace function retoma.reusable(p_run uuid, p_step text, p_item text, p_revision int, out o_output json, out o_revision int)
stable language sql as $$
  select f.output, f.revision
    from (select j.* from retoma.jobs j
           where j.run = p_run and j.step = p_step and j.item = p_item and j.revision < p_revision and j.state <> 'cancelled'
           order by j.revision desc limit 1) f
   cross join lateral retoma.parameters_of(p_run, p_step, p_item, f.version, null, f.revision) before
   cross join lateral retoma.parameters_of(p_run, p_step, p_item, f.version, null, p_revision) now
   where f.state = 'succeeded'
     and exists (select from retoma.remakes m
                  where m.run = p_run and m.revision = p_revision and m.step = p_step and m.item in (p_item, ''))
     -- Nor was it one since then that came to nothing.
     and not exists (select from retoma.remakes m
                      where m.run = p_run and m.revision > f.revision and m.revision <= p_revision
                        and m.step = p_step and m.item in (p_item, '') and m.target)
     and before.item_value::text is not distinct from now.item_value::text and before.results::text[] = now.results::text[]
     and ('"TOO_LARGE"' = any (now.results::text[])) is not true
     -- What it only comes after has not been done again.
     and not exists (select from retoma.edges g
                      join retoma.jobs n on n.run = p_run and n.step = g.from_step and n.revision > f.revision and n.revision <= p_revision
                     where g.version = f.version and g.to_step = p_step and g.via = '' and g.act <> 'expand'
                       and not exists (select from retoma.reads d where d.version = f.version and d.step = p_step and d.from_step = g.from_step)
                       and not exists (select from retoma.remakes m
                                        where m.run = p_run and m.revision = n.revision and m.step = n.step and m.item = n.item
                                          and m.reused_from is not null));
$$;

-- What the worker of a job must know that was begun before, or is made anew, or was decided by a person.
create or replace function retoma.what_came_before(
  p_run uuid, p_step text, p_item text, p_revision int,
  out o_reused json, out o_former json, out o_feedback json, out o_decision text, out o_value json)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_from int;
  v_made int;
begin
  select r.o_output, r.o_revision into o_reused, v_from from retoma.reusable(p_run, p_step, p_item, p_revision) r;
  if v_from is not null then
    update retoma.remakes set reused_from = v_from
     where run = p_run and revision = p_revision and step = p_step and item = p_item;
  end if;
  select j.output, j.revision into o_former, v_made from retoma.jobs j
   where j.run = p_run and j.step = p_step and j.item = p_item and j.revision < p_revision and j.state = 'succeeded'
   order by j.revision desc limit 1;
  -- What was said counts until the job has a result: one that failed is made again with it.
  select m.feedback into o_feedback from retoma.remakes m
   where m.run = p_run and m.step = p_step and m.item = p_item and m.feedback is not null
     and m.revision > coalesce(v_made, 0) and m.revision <= p_revision
   order by m.revision desc limit 1;
  select v.state, coalesce(v.value, v.reason -> 'value') into o_decision, o_value from retoma.reviews v
   where v.run = p_run and v.step = p_step and v.item = p_item and v.revision = p_revision
     and v.applied_at is not null and v.state in ('approved', 'expired');
end $$;

-- What was done to a run, and by whom.
create or replace function retoma.tell_act(p_now timestamptz, p_run uuid, p_revision int, p_by text, p_data jsonb)
returns void language sql as $$
  insert into retoma.events (run, at, revision, kind, data)
  values (p_run, p_now, p_revision, 'act', (jsonb_build_object('by', p_by) || p_data)::json);
$$;

-- The first answer to an act on this run or review with this key, or null. Raises RT005 if the key came with another request.
create or replace function retoma.first_answer(p_subject uuid, p_ask jsonb) returns jsonb language plpgsql as $$
declare
  v_known retoma.act_keys;
begin
  select * into v_known from retoma.act_keys where subject = p_subject and key = p_ask ->> 'key';
  if v_known.digest <> p_ask ->> 'digest' then
    raise exception '%', p_ask ->> 'key' using errcode = 'RT005';
  end if;
  return v_known.answer;
end $$;

-- Keep the first answer to an act, in the transaction that does it, so that every repetition gets the same.
create or replace function retoma.keep_answer(p_subject uuid, p_ask jsonb, p_answer jsonb) returns void language sql as $$
  insert into retoma.act_keys (subject, key, digest, answer, created_at)
  select p_subject, p_ask ->> 'key', p_ask ->> 'digest', p_answer, retoma.now()
   where p_ask ->> 'key' is not null
      on conflict do nothing;
$$;

create or replace function retoma.keep_revision(p_run uuid, p_ask jsonb, p_revision int, p_jobs int) returns void language sql as $$
  select retoma.keep_answer(p_run, p_ask, jsonb_build_object('revision', p_revision, 'jobs', p_jobs));
$$;

-- The revision and the number of jobs of an act that was done before with this key. The caller holds the run.
create or replace function retoma.done_before(p_run uuid, p_ask jsonb, out o_revision int, out o_jobs int) language sql as $$
  select (answer ->> 'revision')::int, (answer ->> 'jobs')::int
    from retoma.first_answer(p_run, p_ask) answer;
$$;

-- What has no result in a run that is over: jobs that failed, and what its stop kept from running. A job that ended while the
-- run stopped has made no successor: that is missing, or, where it gave a list, it must give it again.
create or replace function retoma.lacking(p_run retoma.runs) returns setof retoma.handle stable language sql as $$
  with standing as materialized (
    select * from retoma.standing(p_run.id)
  )
  select s.run, s.step, s.item, s.revision from standing s
   where s.state in ('failed', 'quarantined') and not retoma.is_made_good(s) or s.state = 'cancelled' and p_run.state = 'failed'
  union
  select s.run, case g.act when 'make' then g.to_step else s.step end, s.item, s.revision
    from standing s
    join retoma.edges g on g.version = p_run.version and g.from_step = s.step and g.act in ('make', 'expand')
   where s.state = 'succeeded' and s.ending and p_run.state = 'failed'
     and not exists (select from standing t where t.step = g.to_step and (t.item = s.item or g.act = 'expand'));
$$;

-- Make anew what has no result in a run that is over. With `p_step`, only that step's; with `p_items`, only these items of it.
-- Gives the revision and how many. Who asks for the same while that is under way gets the same answer.
create or replace function retoma.rerun_failed(
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], p_ask jsonb, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_asked jsonb := jsonb_build_object('act', 'rerun_failed', 'step', p_step, 'items', p_items);
  v_run retoma.runs;
  v_jobs retoma.handle[];
begin
  v_run := retoma.locked_live(p_run, p_tenant);
  select * into o_revision, o_jobs from retoma.done_before(v_run.id, p_ask);
  if v_run.id is null or o_revision is not null then
    return;
  end if;
  if v_run.state not in ('completed', 'completed_with_errors', 'failed') then
    select v_run.revision, (e.data ->> 'jobs')::int into o_revision, o_jobs
      from retoma.events e
     where e.run = p_run and e.kind = 'act' and e.revision = v_run.revision and e.data::jsonb @> v_asked
       and v_run.ends_as is null and v_run.ended_at is null
     order by e.id desc limit 1;
    if not found then
      raise exception '%', v_run.state using errcode = 'RT002';
    end if;
    perform retoma.keep_revision(p_run, p_ask, o_revision, o_jobs);
    return;
  end if;
  select array_agg(l order by l.step, l.item) into v_jobs
    from retoma.lacking(v_run) l
   where (p_step is null or l.step = p_step) and (p_items is null or l.item = any (p_items));
  o_jobs := coalesce(cardinality(v_jobs), 0);
  o_revision := v_run.revision + (o_jobs > 0)::int;
  if o_jobs > 0 then
    perform retoma.tell_act(v_now, p_run, o_revision, p_by, v_asked || p_ask || jsonb_build_object('jobs', o_jobs));
    perform retoma.remake(v_now, v_run, v_jobs, '{}', null, false, false);
  end if;
  perform retoma.keep_revision(p_run, p_ask, o_revision, o_jobs);
end $$;

-- A person's result in place of a job's. What depends on it is made anew, and in a run that had failed also what else it
-- lacks; with `p_stay` it is only stale.
create or replace function retoma.edit_result(
  p_run uuid, p_tenant int, p_by text, p_step text, p_item text, p_value json, p_stay boolean, p_ask jsonb,
  out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.locked_live(p_run, p_tenant);
  v_given retoma.handle[];
begin
  select * into o_revision, o_jobs from retoma.done_before(v_run.id, p_ask);
  if o_revision is not null then
    return;
  end if;
  perform retoma.refuse_unless_open(v_run, p_stay);
  perform retoma.refuse_if_to_come(v_run, p_step, p_item);
  v_given := retoma.give(v_now, v_run, p_by, array[p_step], array[p_item], 'succeeded', null, p_value);
  if v_given is null then
    return;
  end if;
  o_revision := v_run.revision + 1;
  if p_stay then
    update retoma.runs set revision = o_revision where id = p_run;
    perform retoma.judge_again(v_now, v_run);
    o_jobs := 0;
  else
    o_jobs := retoma.remake(v_now, v_run, retoma.other_lacking(v_run, v_given), v_given, null, false, false);
  end if;
  perform retoma.tell_act(v_now, p_run, o_revision, p_by, p_ask || jsonb_build_object(
    'act', 'edit', 'step', p_step, 'item', p_item, 'jobs', o_jobs));
  perform retoma.keep_revision(p_run, p_ask, o_revision, o_jobs);
end $$;

-- Make steps anew, or these items of them, and what depends on them; with `p_stale` what is made of something that is no
-- longer current. With `p_alone` what depends on them stays as it is; with `p_fresh` nothing keeps its result.
create or replace function retoma.rerun(
  p_run uuid, p_tenant int, p_by text, p_why text, p_steps text[], p_items text[], p_stale boolean, p_alone boolean, p_fresh boolean,
  p_ask jsonb, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.locked_live(p_run, p_tenant);
  v_jobs retoma.handle[];
begin
  select * into o_revision, o_jobs from retoma.done_before(v_run.id, p_ask);
  if v_run.id is null or o_revision is not null then
    return;
  end if;
  perform retoma.refuse_unless_open(v_run, p_alone);
  v_jobs := case when p_stale then array(select s from retoma.stale(p_run) s) else retoma.targets_of(v_run, p_steps, p_items) end;
  o_jobs := coalesce(cardinality(v_jobs), 0);
  o_revision := v_run.revision + (o_jobs > 0)::int;
  perform retoma.keep_revision(p_run, p_ask, o_revision, o_jobs);
  if o_jobs = 0 then
    return;
  end if;
  perform retoma.tell_act(v_now, p_run, o_revision, p_by, p_ask || jsonb_strip_nulls(jsonb_build_object(
    'act', 'rerun', 'steps', p_steps, 'items', p_items, 'stale', p_stale, 'alone', p_alone, 'fresh', p_fresh, 'why', p_why,
    'jobs', o_jobs)));
  if p_alone then
    perform retoma.remake_alone(v_now, v_run, v_jobs);
  else
    if p_stale and not p_fresh then
      -- No targets: what would be made of the same keeps its result.
      insert into retoma.remakes (run, revision, step, item, target)
      select p_run, o_revision, j.step, j.item, false from unnest(v_jobs) j;
    end if;
    perform retoma.remake(v_now, v_run, v_jobs || retoma.other_lacking(v_run, v_jobs), '{}', null, p_fresh, false);
  end if;
end $$;

-- Make these jobs anew and nothing that depends on them: the run then ends as it had, with errors or without.
create or replace function retoma.remake_alone(p_now timestamptz, p_run retoma.runs, p_jobs retoma.handle[]) returns void language plpgsql as $$
begin
  if exists (select from unnest(p_jobs) j join retoma.edges g on g.version = p_run.version and g.from_step = j.step and g.act = 'expand') then
    raise exception 'its list has items already' using errcode = 'RT003';
  end if;
  insert into retoma.remakes (run, revision, step, item)
  select p_run.id, p_run.revision + 1, j.step, j.item from unnest(p_jobs) j;
  insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, created_at, input, pool, alone)
  select s.run, s.step, s.item, p_run.revision + 1, s.version, s.tenant, t.queue, s.rank, s.position, 'ready', p_now, s.input, t.pool, true
    from unnest(p_jobs) j
    join retoma.standing(p_run.id) s on s.step = j.step and s.item = j.item
    join retoma.steps t on t.version = s.version and t.step = s.step;
  update retoma.runs r
     set revision = r.revision + 1, state = 'running', ended_at = null, ends_as = p_run.state, deadline_at = p_now + r.deadline,
         watch_at = p_now + least((select stuck_after from retoma.versions where id = r.version), r.deadline)
   where r.id = p_run.id;
  perform retoma.restate(array[p_run.id]);
end $$;

-- Cancel a run once for each key. Gives the state that the first such act was answered with.
create or replace function retoma.cancel_once(p_run uuid, p_tenant int, p_by text, p_ask jsonb) returns text language plpgsql as $$
declare
  v_known jsonb;
  v_state text;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  if not exists (select from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant)) then
    return null;
  end if;
  v_known := retoma.first_answer(p_run, p_ask);
  if v_known is not null then
    return v_known ->> 'state';
  end if;
  v_state := retoma.cancel_run(p_run, p_tenant, p_by);
  perform retoma.keep_answer(p_run, p_ask, jsonb_build_object('state', v_state));
  return v_state;
end $$;

-- Let a run that is stuck go on, or make anew what a failed one lacks, once for each key. Gives the state that the first such
-- act was answered with, and whether anything was done for it.
create or replace function retoma.resume_once(
  p_run uuid, p_tenant int, p_by text, p_pause interval, p_grace interval, p_ask jsonb, out o_state text, out o_done boolean)
language plpgsql as $$
declare
  v_run retoma.runs := retoma.locked_live(p_run, p_tenant);
  v_known jsonb := retoma.first_answer(v_run.id, p_ask);
begin
  if v_run.id is null or v_known is not null then
    o_state := v_known ->> 'state';
    o_done := (v_known ->> 'done')::boolean;
    return;
  end if;
  o_state := retoma.resume_run(p_run, p_tenant, p_by, false, p_pause, p_grace);
  if o_state = 'failed' then
    perform retoma.rerun_failed(p_run, p_tenant, p_by, null, null, jsonb_build_object('key', 'resume ' || (p_ask ->> 'key'), 'digest', p_ask ->> 'digest'));
    select state into o_state from retoma.runs where id = p_run;
    o_done := true;
  else
    o_done := v_run.ended_at is null and v_run.state <> 'cancelling';
  end if;
  if o_done then
    perform retoma.keep_answer(p_run, p_ask, jsonb_build_object('state', o_state, 'done', true));
  end if;
end $$;

-- A new run with another input that shares the results of one that is over: all but those of these steps, and of what was to
-- be made of them. Its first revision is that run's. Its key is one of the keys of starts: what was forked with it before is given back.
create or replace function retoma.fork_run(
  p_run uuid, p_tenant int, p_by text, p_new uuid, p_input json, p_steps text[], p_ask jsonb,
  out o_run uuid, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.locked_live(p_run, p_tenant);
  v_new retoma.runs;
  v_jobs retoma.handle[];
  v_pipeline text;
begin
  if v_run.id is null then
    return;
  end if;
  select pipeline into v_pipeline from retoma.versions where id = v_run.version;
  insert into retoma.start_keys (tenant, pipeline, key, run, digest, created_at)
  values (v_run.tenant, v_pipeline, p_ask ->> 'key', p_new, decode(p_ask ->> 'digest', 'hex'), v_now)
      on conflict do nothing
  returning run into o_run;
  if o_run is null then
    select run into o_run from retoma.start_keys
     where tenant = v_run.tenant and pipeline = v_pipeline and key = p_ask ->> 'key' and digest = decode(p_ask ->> 'digest', 'hex');
    if o_run is null then
      raise exception '%', p_ask ->> 'key' using errcode = 'RT005';
    end if;
    select * into o_revision, o_jobs from retoma.done_before(o_run, p_ask);
    return;
  elsif v_run.ended_at is null then
    raise exception '%', v_run.state using errcode = 'RT002';
  end if;
  insert into retoma.runs (id, tenant, version, state, open_sinks, with_errors, input, created_at, run_at, ended_at, watch_at, resumes, retries,
                           deadline, forked_from)
  select p_new, r.tenant, r.version, case when r.state in ('completed', 'completed_with_errors') then r.state else 'failed' end, 0,
         r.with_errors, p_input, v_now, v_now, v_now, 'infinity', r.resumes, r.retries, r.deadline, r.id
    from retoma.runs r where r.id = p_run
  returning * into v_new;
  insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, worker, ending, created_at, ended_at,
                           code, input, output, author)
  select p_new, s.step, s.item, 1, s.version, s.tenant, s.queue, s.rank, s.position,
         s.state, 0, s.ending, v_now, v_now, s.code, s.input, s.output, s.author
    from retoma.standing(p_run) s;
  insert into retoma.events (run, at, revision, kind, data) values (p_new, v_now, 1, 'start', json_build_object('forked_from', p_run));
  v_jobs := coalesce(retoma.targets_of(v_new, p_steps, null), '{}');
  v_jobs := v_jobs || retoma.other_lacking(v_new, v_jobs);
  -- What was made of something else than it would be now is not shared.
  v_jobs := v_jobs || array(select (p_new, s.step, s.item, 1)::retoma.handle from retoma.stale(p_run) s
                             where not exists (select from unnest(v_jobs) j where j.step = s.step and j.item = s.item));
  o_revision := 1 + (cardinality(v_jobs) > 0)::int;
  o_jobs := cardinality(v_jobs);
  perform retoma.tell_act(v_now, p_new, o_revision, p_by, p_ask || jsonb_build_object(
    'act', 'fork', 'from', p_run, 'steps', p_steps, 'jobs', o_jobs));
  perform retoma.keep_revision(p_new, p_ask, o_revision, o_jobs);
  if o_jobs > 0 then
    perform retoma.remake(v_now, v_new, v_jobs, '{}', null, false, false);
  end if;
end $$;

-- Items of a step that a person does not want, in a run that is over: neither they nor what is made of them alone.
create or replace function retoma.skip_items(
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], p_ask jsonb, out o_revision int, out o_jobs int)
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs := retoma.locked_live(p_run, p_tenant);
  v_given retoma.handle[];
begin
  select * into o_revision, o_jobs from retoma.done_before(v_run.id, p_ask);
  if o_revision is not null then
    return;
  end if;
  perform retoma.refuse_unless_open(v_run, true);
  with recursive chain (step) as (
    select p_step collate "C"
    union
    select g.to_step from chain c join retoma.edges g on g.version = v_run.version and g.from_step = c.step and g.same_item
  )
  select retoma.give(v_now, v_run, p_by, array_agg(c.step), array_agg(i.item), 'skipped', 'NOT_WANTED', null) into v_given
    from chain c, unnest(p_items) as i (item);
  if v_given is null then
    return;
  end if;
  o_revision := v_run.revision + 1;
  o_jobs := retoma.remake(v_now, v_run, retoma.other_lacking(v_run, v_given), v_given, null, false, false);
  perform retoma.tell_act(v_now, p_run, o_revision, p_by, p_ask || jsonb_build_object(
    'act', 'skip', 'step', p_step, 'items', to_jsonb(p_items), 'jobs', o_jobs));
  perform retoma.keep_revision(p_run, p_ask, o_revision, o_jobs);
end $$;

-- Nobody acts on a run that is stopping or was ended by a person; with `p_over`, only on one that is over.
create or replace function retoma.refuse_unless_open(p_run retoma.runs, p_over boolean) returns void language plpgsql as $$
begin
  if p_run.state in ('pending', 'cancelling', 'cancelled', 'rejected')
     or p_run.id is not null and p_run.ended_at is null and (p_over or p_run.ends_as is not null) then
    raise exception '%', p_run.state using errcode = 'RT002';
  end if;
end $$;

-- Write a person's rows for those of these jobs that exist. Gives which.
create or replace function retoma.give(
  p_now timestamptz, p_run retoma.runs, p_by text, p_step text[], p_item text[], p_state retoma.job_state, p_code text, p_value json)
returns retoma.handle[] language sql as $$
  with given as (
    insert into retoma.jobs as j (run, step, item, revision, version, tenant, queue, rank, position, state, worker, created_at,
                                  ended_at, code, input, output, author)
    select s.run, s.step, s.item, p_run.revision + 1, s.version, s.tenant, s.queue, s.rank, s.position, p_state, 0, p_now,
           p_now, p_code, s.input, p_value, p_by
      from retoma.standing(p_run.id) s
      join unnest(p_step, p_item) as w (step, item) on w.step = s.step and w.item = s.item
     where s.state not in ('waiting', 'ready', 'running', 'parked')
    returning j.run, j.step, j.item, j.revision
  )
  select array_agg((run, step, item, revision)::retoma.handle) from given;
$$;

-- What else a run that had failed must make to go on.
create or replace function retoma.other_lacking(p_run retoma.runs, p_given retoma.handle[]) returns retoma.handle[] stable language sql as $$
  select coalesce(array_agg(l), '{}')
    from retoma.lacking(p_run) l
   where p_run.state = 'failed' and not exists (select from unnest(p_given) g where g.step = l.step and g.item = l.item);
$$;
