-- A child run is external work of the job that started it: the job is parked, and the end of the child makes the work due for a
-- poll in the same transaction. `recheck_children` finds a child that ended before its parent was parked.

-- Start the child runs of jobs that these leases still own, and record each start as an effect of its job. Returns for each job:
-- `started`, also by an earlier call; `taken`, if another run has the key; or `lost`, if another lease owns the job.
create or replace function retoma.start_children(
  p_worker int[], p_job retoma.job_key[], p_fence int[], p_effect text[], p_find text[], p_find_key text[], p_cancel text[], p_request json[],
  p_id uuid[], p_tenant int[], p_version int[], p_input json[], p_key text[], p_digest bytea[], p_title text[], p_notify boolean)
returns table (state text)
language plpgsql as $$
declare
  v_owned bigint[];                        -- the positions of jobs whose leases are held
  v_new record;
begin
  -- In the order that all calls use. Until the commit, nobody can replace these jobs.
  v_owned := array(
    select s.ordinal
      from unnest(p_worker, p_job, p_fence) with ordinality as s (worker, run, step, item, revision, fence, ordinal)
      join retoma.jobs j on j.run = s.run and j.step = s.step and j.item = s.item and j.revision = s.revision
                        and j.worker = s.worker and j.fence = s.fence and j.state = 'running'
     order by j.run, j.step, j.item, j.revision for no key update of j);

  select array_agg(s.id order by s.ordinal) as id, array_agg(s.tenant order by s.ordinal) as tenant,
         array_agg(s.version order by s.ordinal) as version, array_agg(s.input order by s.ordinal) as input,
         array_agg(s.key order by s.ordinal) as key, array_agg(s.digest order by s.ordinal) as digest,
         array_agg(s.title order by s.ordinal) as title, array_agg(0::bigint) as head_start
    into v_new
    from unnest(p_job, p_effect, p_id, p_tenant, p_version, p_input, p_key, p_digest, p_title)
         with ordinality as s (run, step, item, revision, effect, id, tenant, version, input, key, digest, title, ordinal)
   where s.ordinal = any (v_owned) and not retoma.is_effect_done((s.run, s.step, s.item, s.revision)::retoma.job_key, s.effect);

  if v_new.id is not null then
    perform from retoma.start_runs(v_new.id, v_new.tenant, v_new.version, v_new.input, v_new.key, v_new.digest, '{}', v_new.head_start,
                                   '{}', '{}', '{}', '{}', v_new.title, p_notify);
    with child as (
      update retoma.runs r
         set parent = (s.run, s.step, s.item, s.revision)::retoma.job_key
        from unnest(p_job, p_fence, p_effect, p_find, p_find_key, p_cancel, p_request, p_id)
             as s (run, step, item, revision, fence, effect, find, find_key, cancel, request, id)
       where r.id = s.id and r.id = any (v_new.id)
      returning s.*
    )
    insert into retoma.effects as e (run, step, item, revision, name, version, fence, begun_at, done_at, value, find, find_key, cancel, request)
    select c.run, c.step, c.item, c.revision, c.effect, j.version, c.fence, retoma.now(), retoma.now(), to_json(c.id), c.find, c.find_key,
           c.cancel, c.request
      from child c
      join retoma.jobs j on j.run = c.run and j.step = c.step and j.item = c.item and j.revision = c.revision
        on conflict (run, step, item, revision, name) do update
       set fence = excluded.fence, done_at = excluded.done_at, value = excluded.value, find = excluded.find, find_key = excluded.find_key,
           cancel = excluded.cancel, request = excluded.request;
  end if;

  return query
  select case when s.ordinal <> all (v_owned) then 'lost'
              when retoma.is_effect_done((s.run, s.step, s.item, s.revision)::retoma.job_key, s.effect) then 'started'
              else 'taken' end
    from unnest(p_job, p_effect) with ordinality as s (run, step, item, revision, effect, ordinal)
   order by s.ordinal;
end $$;

create or replace function retoma.is_effect_done(p_job retoma.job_key, p_name text) returns boolean stable language sql as $$
  select exists (select from retoma.effects e
                  where e.run = p_job.run and e.step = p_job.step and e.item = p_job.item and e.revision = p_job.revision
                    and e.name = p_name and e.done_at is not null);
$$;

create or replace function retoma.wake_parent() returns trigger language plpgsql as $$
begin
  update retoma.external_work o
     set next_at = retoma.now()
   where o.run = (new.parent).run and o.step = (new.parent).step and o.item = (new.parent).item
     and o.poll_interval is null and o.ended_at is null and o.external_id #>> '{}' = new.id::text;
  return null;
end $$;

create or replace trigger child_run_wakes_its_parent
  after update of ended_at on retoma.runs for each row
  when (new.parent is not null and old.ended_at is null and new.ended_at is not null)
  execute function retoma.wake_parent();

-- Make the external work of these jobs due at `p_at` if it is a child run whose end may have been missed. The last thing that a
-- transaction does: until it commits, the open children cannot end, and their ends hold other rows.
create or replace function retoma.recheck_children(p_at timestamptz, p_jobs retoma.job_key[]) returns void language sql as $$
  with child as materialized (
    select o.run, o.step, o.item, o.revision, (o.external_id #>> '{}')::uuid as id
      from unnest(p_jobs) j
      join retoma.external_work o on o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
     where o.poll_interval is null and o.ended_at is null and o.next_at = 'infinity'
  )
  update retoma.external_work o
     set next_at = p_at
    from child c
   where o.run = c.run and o.step = c.step and o.item = c.item and o.revision = c.revision
     and retoma.may_have_ended(c.id);
$$;

-- Whether a run has ended, or a transaction that may end it holds its row: it may not have seen what is written here. Without
-- one, no end is missed: the run cannot end until the caller commits.
create or replace function retoma.may_have_ended(p_run uuid) returns boolean language sql as $$
  select coalesce((select r.ended_at is not null from retoma.runs r where r.id = p_run for share skip locked), true);
$$;
