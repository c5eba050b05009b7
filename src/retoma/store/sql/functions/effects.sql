-- Record that an effect starts, if this lease still owns the job. Returns the state: `new`; `begun` by an earlier attempt, or
-- perhaps before a restore, with an unknown outcome; `done`, with its value; `looked_for`, if a worker still ends what an earlier
-- revision left behind under the same key, which this call must not find and use; or `lost`, if another lease owns the job. The
-- callback with the given token can be called from now on. The functions and the request are those of the code that runs now.
create or replace function retoma.begin_effect(
  p_worker int, p_run uuid, p_step text, p_item text, p_revision int, p_fence int, p_name text,
  p_find text, p_find_key text, p_cancel text, p_request json,
  p_token_hash bytea, p_token_lives interval, out o_state text, out o_value json)
language plpgsql as $$
declare
  v_version int;
begin
  select version into v_version from retoma.jobs
    where run = p_run and step = p_step and item = p_item and revision = p_revision
      and worker = p_worker and fence = p_fence and state = 'running' for no key update;
  if not found then
    o_state := 'lost';
    return;
  end if;
  if p_revision > 1 and exists (
    select from retoma.effects e
     where e.run = p_run and e.step = p_step and e.item = p_item and e.revision < p_revision and e.name = p_name
       and e.find_key = p_find_key and e.next_at is not null) then
    o_state := 'looked_for';
    return;
  end if;
  if p_token_hash is not null then
    insert into retoma.callbacks (token_hash, run, step, item, revision, expires_at)
    values (p_token_hash, p_run, p_step, p_item, p_revision, retoma.now() + p_token_lives)
        on conflict do nothing;
  end if;
  insert into retoma.effects (run, step, item, revision, name, version, fence, begun_at, find, find_key, cancel, request)
  values (p_run, p_step, p_item, p_revision, p_name, v_version, p_fence, retoma.now(), p_find, p_find_key, p_cancel, p_request)
      on conflict do nothing;
  if found then
    -- In a run that was restored from a backup, the call may have been made elsewhere: `find` is asked first.
    o_state := case when retoma.may_have_continued_elsewhere(p_run) then 'begun' else 'new' end;
    return;
  end if;
  -- The attempt that began it can no longer record its outcome.
  update retoma.effects e
     set fence = p_fence, begun_at = case when e.done_at is null then retoma.now() else e.begun_at end,
         find = p_find, find_key = p_find_key, cancel = p_cancel, request = p_request
   where e.run = p_run and e.step = p_step and e.item = p_item and e.revision = p_revision and e.name = p_name
  returning case when e.done_at is null then 'begun' else 'done' end, e.value into o_state, o_value;
end $$;

-- Record the value of an effect, unless a later lease has taken it over. Repeating the call changes nothing. An effect that was
-- abandoned in the meantime is due again: now its value is known.
create or replace function retoma.end_effect(
  p_run uuid, p_step text, p_item text, p_revision int, p_fence int, p_name text, p_value json) returns boolean
language plpgsql as $$
begin
  update retoma.effects e
     set value = p_value, done_at = retoma.now(),
         next_at = case when e.abandoned_at is not null and e.resolved_by is null then retoma.now() end,
         looks = e.looks + (e.abandoned_at is not null)::int,
         orphaned_at = case when e.resolved_by is not null then e.orphaned_at end,
         orphan_logged = e.orphan_logged and e.resolved_by is not null,
         resolution = case when e.resolved_by is not null then e.resolution end,
         resolved_at = case when e.resolved_by is not null then e.resolved_at end
   where e.run = p_run and e.step = p_step and e.item = p_item and e.revision = p_revision and e.name = p_name
     and e.fence = p_fence and e.done_at is null;
  return found or exists (
    select from retoma.effects e
     where e.run = p_run and e.step = p_step and e.item = p_item and e.revision = p_revision and e.name = p_name and e.fence = p_fence);
end $$;

-- Whether an effect may still be going on when its job ends without a result: its outcome is unknown, or it started something
-- that must be ended. External work is ended as such.
create or replace function retoma.is_left_behind(p_effect retoma.effects) returns boolean stable language sql as $$
  select (p_effect.done_at is null or p_effect.cancel is not null or p_effect.request is not null)
     and not (p_effect.request is not null
              and exists (select from retoma.external_work o
                           where o.run = p_effect.run and o.step = p_effect.step and o.item = p_effect.item
                             and o.revision = p_effect.revision));
$$;

-- Whether a worker can find out what became of an effect.
create or replace function retoma.can_be_looked_for(p_effect retoma.effects) returns boolean immutable language sql as $$
  select p_effect.find is not null or p_effect.done_at is not null;
$$;

-- Whether a worker would look for something that this job leaves behind if it ended now.
create or replace function retoma.leaves_something_to_look_for(p_job retoma.jobs) returns boolean stable language sql as $$
  select exists (select from retoma.effects e
                  where e.run = p_job.run and e.step = p_job.step and e.item = p_job.item and e.revision = p_job.revision
                    and retoma.is_left_behind(e) and retoma.can_be_looked_for(e));
$$;

-- Abandon the effects that these jobs, which end without a result, leave behind. From `p_look_at` on a worker looks for each; what
-- no worker can find is an orphan, which only a person can resolve. With `p_keep_done`, what a job has done stays: a person gives it
-- a result. Repeating the call changes nothing.
create or replace function retoma.abandon_effects(
  p_now timestamptz, p_look_at timestamptz, p_jobs retoma.job_key[], p_keep_done boolean default false) returns void language sql as $$
  with abandoned as (
    update retoma.effects e
       set abandoned_at = p_now,
           next_at = case when retoma.can_be_looked_for(e) then p_look_at end,
           orphaned_at = case when not retoma.can_be_looked_for(e) then p_now end
      from unnest(p_jobs) j
     where e.run = j.run and e.step = j.step and e.item = j.item and e.revision = j.revision
       and e.abandoned_at is null and retoma.is_left_behind(e) and (not p_keep_done or e.done_at is null or e.request is not null)
    returning e as effect
  )
  select retoma.record_orphan(a.effect) from abandoned a where (a.effect).orphaned_at is not null;
$$;

-- Record on the run that an effect was left to a person. This is not progress, and neither is its resolution.
create or replace function retoma.record_orphan(p_effect retoma.effects) returns void language sql as $$
  insert into retoma.events (run, at, revision, kind, step, item, data)
  values (p_effect.run, p_effect.orphaned_at, p_effect.revision, 'orphan', p_effect.step, p_effect.item,
          json_build_object('effect', p_effect.name, 'key', p_effect.find_key, 'error', p_effect.error));
$$;

-- Leave external work of these jobs to a person: it may still be going on, and nobody polls it any longer. Its effect gets a name of
-- its own and no functions, because a retry of the job submits again.
create or replace function retoma.orphan_external_work(p_now timestamptz, p_jobs retoma.job_key[]) returns void language sql as $$
  with orphaned as (
    update retoma.effects e
       set name = e.name || '#' || e.fence, find = null, cancel = null, request = null,
           abandoned_at = coalesce(e.abandoned_at, p_now), next_at = null, orphaned_at = p_now, error = o.error, resolution = null, resolved_at = null
      from unnest(p_jobs) j
      join retoma.external_work o on o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
     where e.run = j.run and e.step = j.step and e.item = j.item and e.revision = j.revision and e.request is not null
    returning e as effect
  )
  select retoma.record_orphan(o.effect) from orphaned o;
$$;

-- Whether a worker still looks for something that this job has left behind.
create or replace function retoma.is_looked_for(p_job retoma.jobs) returns boolean stable language sql as $$
  select exists (select from retoma.effects e
                  where e.run = p_job.run and e.step = p_job.step and e.item = p_job.item and e.revision = p_job.revision
                    and e.next_at is not null);
$$;

-- Claim abandoned effects that are due for a look, each for one worker. Of those during whose look a worker died, at most one is
-- returned, and only if `p_suspect`. One that killed three workers is `given_up`: none of its functions is called.
create or replace function retoma.claim_looks(p_versions int[], p_limit int, p_lease interval, p_worker int, p_suspect boolean)
returns setof retoma.effects
language sql as $$
  with clock as materialized (
    select retoma.now() as at
  )
  update retoma.effects e
     set looks = e.looks + 1, next_at = clock.at + p_lease, looking_worker = p_worker
    from clock
   where e.ctid = any (array(
     select d.ctid from retoma.effects d
      where d.next_at <= (select at from clock) and d.version = any (p_versions) and (d.worker_deaths = 0 or d.worker_deaths >= 3)
      order by d.next_at limit p_limit for update skip locked)
     || array(
     select d.ctid from retoma.effects d
      where p_suspect and d.next_at <= (select at from clock) and d.version = any (p_versions) and d.worker_deaths in (1, 2)
      order by d.next_at limit 1 for update skip locked))
  returning e.*;
$$;

-- Record what a look found, unless a later look was made: the value of the effect, if it is known now, and what became of it.
-- Without a resolution the look failed and is repeated, for a day at most. Returns whether it was accepted.
create or replace function retoma.record_look(
  p_run uuid, p_step text, p_item text, p_revision int, p_name text, p_looks int, p_value json, p_resolution text, p_error json)
returns boolean
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_job retoma.jobs;
  v_effect retoma.effects;
begin
  -- Lock jobs before effects, as cancellation does.
  select * into v_job from retoma.jobs
   where run = p_run and step = p_step and item = p_item and revision = p_revision for update;
  select * into v_effect from retoma.effects
   where run = p_run and step = p_step and item = p_item and revision = p_revision and name = p_name
     and looks = p_looks and next_at is not null for update;
  if not found then
    return false;
  end if;
  v_effect.next_at := case
    when p_resolution is null and v_effect.worker_deaths < 3 and v_now < v_effect.abandoned_at + interval '1 day'
    then v_now + least(interval '1 second' * 2 ^ least(v_effect.failed_looks, 10), interval '1 minute') end;
  update retoma.effects e
     set value = coalesce(e.value, p_value), done_at = coalesce(e.done_at, case when p_value is not null then v_now end),
         next_at = v_effect.next_at, failed_looks = e.failed_looks + (p_resolution is null)::int, looking_worker = null, worker_deaths = 0,
         orphaned_at = case when p_resolution is null and v_effect.next_at is null then v_now end,
         error = p_error, resolution = p_resolution, resolved_at = case when p_resolution is not null then v_now end
   where e.run = p_run and e.step = p_step and e.item = p_item and e.revision = p_revision and e.name = p_name
  returning e.* into v_effect;
  if v_effect.orphaned_at is not null then
    perform retoma.record_orphan(v_effect);
  end if;
  if p_resolution = 'external_work' then
    perform retoma.record_external_work(v_now, array[v_job], array[p_name]);
  elsif v_effect.next_at is null and v_job.state = 'parked' and v_job.stopping then
    perform retoma.end_stopping_job(v_now, v_job);
  end if;
  return true;
end $$;

-- End the looks of a worker that has ended. If it died, each of them is a suspect from now on.
create or replace function retoma.end_worker_looks(p_now timestamptz, p_worker int, p_died boolean) returns void language sql as $$
  update retoma.effects set looking_worker = null, next_at = p_now, worker_deaths = worker_deaths + p_died::int
   where looking_worker = p_worker and next_at is not null;
$$;

-- End a parked job of a stopping run, once its external work has ended and nothing that it leaves behind is looked for any more.
create or replace function retoma.end_stopping_job(p_now timestamptz, p_job retoma.jobs) returns void language plpgsql as $$
declare
  v_key retoma.job_key := (p_job.run, p_job.step, p_job.item, p_job.revision);
begin
  if exists (select from retoma.external_work o
              where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision and o.ended_at is null) then
    return;
  end if;
  perform retoma.abandon_effects(p_now, p_now, array[v_key]);
  if retoma.is_looked_for(p_job) then
    return;
  end if;
  perform retoma.release_slots(array[v_key]);
  update retoma.jobs set state = 'cancelled', pool = null, ended_at = p_now, code = 'RUN_STOPPED'
   where run = p_job.run and step = p_job.step and item = p_job.item and revision = p_job.revision and state = 'parked';
  perform retoma.refresh_run_state(p_now, array[p_job.run]);
end $$;

-- Resolve an orphan as a person says, unless it was resolved before. Returns it as it is then; nothing if the tenant has no such
-- orphan. Without a revision it is the newest that is not resolved.
create or replace function retoma.resolve_orphan(
  p_run uuid, p_tenant int, p_step text, p_item text, p_revision int, p_name text, p_resolution text, p_by text)
returns setof retoma.effects
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_effect retoma.effects;
begin
  select e.* into v_effect
    from retoma.effects e
    join retoma.runs r on r.id = e.run
   where e.run = p_run and (p_tenant is null or r.tenant = p_tenant) and e.step = p_step and e.item = p_item and e.name = p_name
     and (p_revision is null or e.revision = p_revision) and e.orphaned_at is not null
   order by e.resolved_at is not null, e.revision desc limit 1 for update of e;
  if not found then
    return;
  end if;
  if v_effect.resolution is null then
    update retoma.effects e set resolution = p_resolution, resolved_at = v_now, resolved_by = p_by
     where e.run = p_run and e.step = p_step and e.item = p_item and e.revision = v_effect.revision and e.name = p_name
    returning * into v_effect;
    insert into retoma.events (run, at, revision, kind, step, item, data)
    values (p_run, v_now, v_effect.revision, 'orphan', p_step, p_item,
            json_build_object('effect', p_name, 'resolution', p_resolution, 'by', p_by));
  end if;
  return next v_effect;
end $$;
