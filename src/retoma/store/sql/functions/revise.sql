-- The jobs that stand for a run: of every step and item the latest.
create or replace function retoma.standing(p_run uuid) returns setof retoma.jobs stable language sql as $$
  select distinct on (j.step, j.item) j.* from retoma.jobs j where j.run = p_run order by j.step, j.item, j.revision desc;
$$;

-- A run that a person acts on; null if there is no such run of this tenant.
create or replace function retoma.locked_for_act(p_run uuid, p_tenant int) returns retoma.runs language plpgsql as $$
declare
  v_run retoma.runs;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  select * into v_run from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant) for update;
  return v_run;
end $$;

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

-- Make these jobs anew at the run's next revision, and all that depends on them and on those that a person has `p_given` a
-- row of that revision; the run goes on. A job whose needs stay as they are is made at once, the rest as its needs end, by
-- the same means as the first time. Gives how many were made at once.
create or replace function retoma.remake(p_now timestamptz, p_run retoma.runs, p_jobs retoma.handle[], p_given retoma.handle[]) returns int
set plan_cache_mode = force_generic_plan
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_revision int := p_run.revision + 1;
  v_sinks int;
  v_made int;
begin
  if exists (select from retoma.affected_by(p_run.id, p_run.version, p_jobs || p_given) a
              join retoma.standing(p_run.id) s on s.step = a.step where a.item is null) then
    raise exception 'its list has items already' using errcode = 'RT003';
  end if;

  with affected as materialized (
    select a.* from retoma.affected_by(p_run.id, p_run.version, p_jobs || p_given) a
     where not exists (select from unnest(p_given) g where g.step = a.step and g.item = a.item)
  ), waits as (
    -- What each waits for: of every need that is made anew itself, its end, or the ends of its items. Items that are
    -- yet to come are stood in for by their source.
    select a.step, a.item, count(n.step)::int as left
      from affected a
      left join retoma.edges g
        on g.version = p_run.version and g.to_step = a.step and g.via = '' and g.act in ('make', 'count', 'share')
      left join affected n
        on n.step = g.from_step and (not g.same_item or n.item is not distinct from a.item)
     where a.item is not null
     group by 1, 2
  ), former as (
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
  ), later as (
    insert into retoma.remakes (run, revision, step, item)
    select p_run.id, v_revision, w.step, w.item
      from waits w
      join retoma.steps s on s.version = p_run.version and s.step = w.step
     where w.left > 0 and s.born = 'need'
  )
  select (select count(*) from made),
         (select count(n.step) from retoma.edges g join affected n on n.step = g.from_step
           where g.version = p_run.version and g.act = 'end' and g.via = '')
    into v_made, v_sinks;

  update retoma.runs r
     set revision = v_revision, open_sinks = v_sinks, ends_as = null,
         deadline_at = p_now + r.deadline,
         watch_at = p_now + least((select stuck_after from retoma.versions where id = r.version), r.deadline),
         state = case when v_sinks > 0 then 'running' when r.state = 'failed' then 'failed'
                      when f.lacks then 'completed_with_errors' else 'completed' end::retoma.run_state,
         with_errors = f.lacks,
         ended_at = case when v_sinks = 0 then r.ended_at end
    -- A failure that is not made good by this.
    from (select exists (select from retoma.standing(p_run.id) s
                          where s.state in ('failed', 'quarantined') and s.revision < v_revision and not retoma.is_made_good(s)
                            and not exists (select from retoma.affected_by(p_run.id, p_run.version, p_jobs || p_given) a
                                             where a.step = s.step and (a.item = s.item or a.item is null))) as lacks) f
   where r.id = p_run.id;
  return v_made;
end $$;

-- What was done to a run, and by whom.
create or replace function retoma.tell_act(p_now timestamptz, p_run uuid, p_revision int, p_by text, p_data jsonb)
returns void language sql as $$
  insert into retoma.events (run, at, revision, kind, data)
  values (p_run, p_now, p_revision, 'act', (jsonb_build_object('by', p_by) || p_data)::json);
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
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], out o_revision int, out o_jobs int)
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_asked jsonb := jsonb_build_object('act', 'rerun_failed', 'step', p_step, 'items', p_items);
  v_run retoma.runs;
  v_jobs retoma.handle[];
begin
  v_run := retoma.locked_for_act(p_run, p_tenant);
  if v_run.id is null then
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
    return;
  end if;
  select array_agg(l order by l.step, l.item) into v_jobs
    from retoma.lacking(v_run) l
   where (p_step is null or l.step = p_step) and (p_items is null or l.item = any (p_items));
  o_jobs := coalesce(cardinality(v_jobs), 0);
  o_revision := v_run.revision + (o_jobs > 0)::int;
  if o_jobs > 0 then
    perform retoma.tell_act(v_now, p_run, o_revision, p_by, v_asked || jsonb_build_object('jobs', o_jobs));
    perform retoma.remake(v_now, v_run, v_jobs, '{}');
  end if;
end $$;

-- A person's result in place of a job's, in a run that is over. What depends on it is made anew, and in a run that had failed
-- also what else it lacks.
create or replace function retoma.edit_result(
  p_run uuid, p_tenant int, p_by text, p_step text, p_item text, p_value json, out o_revision int, out o_jobs int)
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs;
  v_given retoma.handle[];
begin
  v_run := retoma.over_for_act(p_run, p_tenant);
  v_given := retoma.give(v_now, v_run, p_by, array[p_step], array[p_item], 'succeeded', null, p_value);
  if v_given is null then
    return;
  end if;
  o_revision := v_run.revision + 1;
  perform retoma.tell_act(v_now, p_run, o_revision, p_by, jsonb_build_object('act', 'edit', 'step', p_step, 'item', p_item));
  o_jobs := retoma.remake(v_now, v_run, retoma.other_lacking(v_run, v_given), v_given);
end $$;

-- Items of a step that a person does not want, in a run that is over: neither they nor what is made of them alone.
create or replace function retoma.skip_items(
  p_run uuid, p_tenant int, p_by text, p_step text, p_items text[], out o_revision int, out o_jobs int)
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_run retoma.runs;
  v_given retoma.handle[];
begin
  v_run := retoma.over_for_act(p_run, p_tenant);
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
  perform retoma.tell_act(v_now, p_run, o_revision, p_by,
                          jsonb_build_object('act', 'skip', 'step', p_step, 'items', to_jsonb(p_items)));
  o_jobs := retoma.remake(v_now, v_run, retoma.other_lacking(v_run, v_given), v_given);
end $$;

-- A run that is over; another cannot be acted on in this way.
create or replace function retoma.over_for_act(p_run uuid, p_tenant int) returns retoma.runs language plpgsql as $$
declare
  v_run retoma.runs := retoma.locked_for_act(p_run, p_tenant);
begin
  if v_run.state not in ('completed', 'completed_with_errors', 'failed') then
    raise exception '%', v_run.state using errcode = 'RT002';
  end if;
  return v_run;
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
