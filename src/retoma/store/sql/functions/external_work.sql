-- Forget failed external work of jobs that are retried: the next attempt submits again.
create or replace function retoma.forget_external_work(p_jobs retoma.job_key[]) returns void language sql as $$
  with failed as (
    delete from retoma.external_work o
     using unnest(p_jobs) j
     where o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
       and o.state in ('failed', 'cancelled', 'lost')
    returning o.*
  ), silenced as (
    -- Later callbacks of the old work must not count for the new one.
    delete from retoma.callbacks c
     using failed f
     where c.run = f.run and c.step = f.step and c.item = f.item and c.revision = f.revision
  )
  delete from retoma.effects e
   using failed f
   where e.run = f.run and e.step = f.step and e.item = f.item and e.revision = f.revision
     and e.request is not null;
$$;

-- Record the external work that these jobs submitted, each with the effect of that name. It is polled at once if its callback arrived already, or to end it, if its
-- job is stopping or has ended. A transaction that parks a job ends with `recheck_children`.
create or replace function retoma.record_external_work(p_now timestamptz, p_jobs retoma.jobs[], p_effects text[]) returns void language plpgsql as $$
begin
  -- The provider may be calling at the same time: see its callback, or let it see what is written here.
  perform from retoma.callbacks c
    where (c.run, c.step, c.item, c.revision) in (select j.run, j.step, j.item, j.revision from unnest(p_jobs) j)
    order by token_hash for update;
  insert into retoma.external_work (run, step, item, revision, version, external_id, poll, cancel, poll_interval, queue_timeout, run_timeout,
                                    total_timeout, next_at, parked_at, started_at)
  select j.run, j.step, j.item, j.revision, j.version, e.value, e.request ->> 'poll', e.cancel,
         make_interval(secs => (e.request ->> 'poll_interval')::float), make_interval(secs => (e.request ->> 'queue_timeout')::float),
         make_interval(secs => (e.request ->> 'run_timeout')::float), make_interval(secs => (e.request ->> 'total_timeout')::float),
         case when j.stopping or j.ended_at is not null
                or exists (select from retoma.callbacks c
                            where c.run = j.run and c.step = j.step and c.item = j.item
                              and c.revision = j.revision and c.called_at is not null)
              then p_now
              when e.request ->> 'poll_interval' is null then 'infinity'
              else p_now + make_interval(secs => coalesce(case when e.request ->> 'poll' is null then (e.request ->> 'total_timeout')::float end,
                                                          (e.request ->> 'poll_interval')::float)) end,
         p_now, j.started_at
    from unnest(p_jobs) with ordinality j
    join retoma.effects e on e.run = j.run and e.step = j.step and e.item = j.item and e.revision = j.revision
                         and e.name = p_effects[j.ordinality]
      on conflict (run, step, item, revision) do update set next_at = excluded.next_at;
end $$;

-- Claim external work that is due for a poll, each for one worker. `stop` says why it should end. `seconds_left` is the time to
-- its total limit or, once it should end, the time for which its end is awaited: at least a minute after it is first asked to end.
-- Of the work during whose poll a worker died, at most one is returned, and only if `p_suspect`; work that is given up needs no poll.
create or replace function retoma.poll_due(
  p_versions int[], p_limit int, p_lease interval, p_worker int default null, p_suspect boolean default true)
returns table (
  run uuid, step text, item text, revision int, version int, external_id json, poll text, cancel text, polls int,
  state text, stop text, given_up boolean, callback_received boolean, callback_body json, worker_deaths int, seconds_left float)
language sql as $$
  with clock as materialized (
    select retoma.now() as at
  ), taken as (
    update retoma.external_work o
       set polls = o.polls + 1, next_at = clock.at + p_lease, polling_worker = p_worker
      from clock
     where o.ctid = any (array(
       select d.ctid from retoma.external_work d
        where d.next_at <= (select at from clock) and d.ended_at is null and d.version = any (p_versions)
          and (d.worker_deaths = 0 or d.parked_at + d.total_timeout + interval '1 minute' <= (select at from clock))
        order by d.next_at limit p_limit for update skip locked)
       || array(
       select d.ctid from retoma.external_work d
        where p_suspect and d.next_at <= (select at from clock) and d.ended_at is null and d.version = any (p_versions)
          and d.worker_deaths > 0 and d.parked_at + d.total_timeout + interval '1 minute' > (select at from clock)
        order by d.next_at limit 1 for update skip locked))
    returning o.*, clock.at
  )
  select t.run, t.step, t.item, t.revision, t.version, t.external_id, t.poll, t.cancel, t.polls, t.state, s.stop,
         -- It should have ended by now: nobody waits for it any longer.
         t.at >= t.parked_at + t.total_timeout + interval '1 minute',
         c.called_at is not null, c.body, t.worker_deaths,
         extract(epoch from case when s.stop is null then t.parked_at + t.total_timeout - t.at
                                 else greatest(t.parked_at + t.total_timeout + interval '1 minute' - t.at,
                                               case when t.stopping_at is null then interval '1 minute' end) end)::float
    from taken t
    join retoma.jobs j on j.run = t.run and j.step = t.step and j.item = t.item and j.revision = t.revision
   cross join lateral (
      select case when j.stopping then 'RUN_STOPPED'
                  when j.ended_at is not null then 'JOB_ENDED'
                  when t.state = 'queued' and t.at >= t.parked_at + t.queue_timeout then 'QUEUE_TIMEOUT'
                  when t.state = 'running' and t.at >= t.running_at + t.run_timeout
                    or t.at >= t.parked_at + t.total_timeout then 'TIMEOUT' end as stop) s
    left join lateral (
      select b.called_at, b.body from retoma.callbacks b
       where b.run = t.run and b.step = t.step and b.item = t.item and b.revision = t.revision and b.called_at is not null
       order by b.called_at desc limit 1) c on true;
$$;

-- Record the result of a poll, unless a later poll was made. Returns whether it was accepted. A failed poll with a final state says
-- that nobody waits for the work any longer, although its end was not confirmed.
create or replace function retoma.record_poll(
  p_run uuid, p_step text, p_item text, p_revision int, p_polls int,
  p_state text, p_progress real, p_result json, p_error json, p_failed boolean, p_stopping boolean)
returns boolean
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_job retoma.jobs;
  v_over boolean := p_state in ('succeeded', 'failed', 'cancelled', 'lost');
  v_is_child boolean;
begin
  -- Lock jobs before external work, as cancellation does.
  select * into v_job from retoma.jobs
   where run = p_run and step = p_step and item = p_item and revision = p_revision for update;
  update retoma.external_work o
     set state = p_state, progress = coalesce(p_progress, o.progress), result = p_result, error = p_error,
         failed_polls = case when p_failed then o.failed_polls + 1 else 0 end,
         running_at = case when p_state = 'running' then coalesce(o.running_at, v_now) else o.running_at end,
         stopping_at = case when p_stopping then coalesce(o.stopping_at, v_now) else o.stopping_at end,
         ended_at = case when v_over then v_now end,
         next_at = retoma.next_poll_at(v_now, o, p_state, p_failed, p_stopping or v_job.stopping), polling_worker = null, worker_deaths = 0
   where o.run = p_run and o.step = p_step and o.item = p_item and o.revision = p_revision
     and o.polls = p_polls and o.ended_at is null
  returning o.poll_interval is null into v_is_child;
  if not found then
    return false;
  end if;
  if v_over and p_failed then
    perform retoma.orphan_external_work(v_now, array[(p_run, p_step, p_item, p_revision)::retoma.job_key]);
  end if;
  if v_over and v_job.state = 'parked' then
    perform retoma.resume_parked_job(v_now, v_job);
  end if;
  if not v_over and v_is_child then
    perform retoma.recheck_children(v_now + interval '1 second', array[(p_run, p_step, p_item, p_revision)::retoma.job_key]);
  end if;
  return true;
end $$;

-- Jobs whose poll ran on this worker after two other workers had died of it.
create or replace function retoma.fatal_polls(p_worker int) returns retoma.job_key[] stable language sql as $$
  select array(select (o.run, o.step, o.item, o.revision)::retoma.job_key from retoma.external_work o
                where o.polling_worker = p_worker and o.ended_at is null and o.worker_deaths >= 2
                order by o.run, o.step, o.item, o.revision);
$$;

-- End the polls and looks of a worker that has ended. If it died, each of its polls is a suspect from now on. With the third death in a
-- row the work ends as `lost`, and its job is treated as if it had run on that worker, with as many deaths.
create or replace function retoma.end_worker_polls(p_now timestamptz, p_worker int, p_died boolean) returns void language plpgsql as $$
declare
  v_fatal retoma.job_key[];
begin
  perform retoma.end_worker_looks(p_now, p_worker, p_died);
  if not exists (select from retoma.external_work o where o.polling_worker = p_worker and o.ended_at is null) then
    return;
  end if;
  v_fatal := retoma.fatal_polls(p_worker);
  if p_died and v_fatal <> '{}' then
    -- Lock all runs at once and before their jobs, in the order that stopping runs uses.
    perform retoma.lock_runs('stop', array(select j.run from retoma.running_jobs_of_worker(p_worker) j union select k.run from unnest(v_fatal) k));
    perform from retoma.jobs j
      where (j.run, j.step, j.item, j.revision) in (select k.run, k.step, k.item, k.revision from unnest(v_fatal) k)
      order by j.run, j.step, j.item, j.revision for update;
    v_fatal := retoma.fatal_polls(p_worker);  -- one may have ended before it was locked
    update retoma.jobs j set state = 'ready' from unnest(v_fatal) k
     where j.run = k.run and j.step = k.step and j.item = k.item and j.revision = k.revision and j.state = 'parked';
    update retoma.jobs j set state = 'running', worker = p_worker, worker_deaths = greatest(j.worker_deaths, 2) from unnest(v_fatal) k
     where j.run = k.run and j.step = k.step and j.item = k.item and j.revision = k.revision and j.state = 'ready';
  end if;
  update retoma.external_work o
     set polling_worker = null, next_at = p_now, worker_deaths = o.worker_deaths + p_died::int,
         state = case when p_died and o.worker_deaths >= 2 then 'lost' else o.state end,
         ended_at = case when p_died and o.worker_deaths >= 2 then p_now end,
         error = case when p_died and o.worker_deaths >= 2
                      then json_build_object('code', 'QUARANTINED', 'message', 'three workers died while polling it') end
   where o.polling_worker = p_worker and o.ended_at is null;
  if p_died then
    perform retoma.orphan_external_work(p_now, v_fatal);
  end if;
end $$;

-- When to poll next: as often as the step asked, less often while the provider does not answer, and in time for the nearest
-- limit. A child run is not polled until it has ended.
create or replace function retoma.next_poll_at(p_now timestamptz, p_work retoma.external_work, p_state text, p_failed boolean, p_stopping boolean)
returns timestamptz immutable language sql as $$
  select case
    when p_stopping then p_now + interval '1 second'
    when p_work.poll_interval is null then 'infinity'
    when p_work.poll is null then p_work.parked_at + p_work.total_timeout
    else least(
      p_now + case when p_failed then least(p_work.poll_interval * 2 ^ least(p_work.failed_polls + 1, 10),
                                            greatest(p_work.poll_interval, interval '1 minute'))
                   else p_work.poll_interval end,
      retoma.at_least_a_second_ahead(p_now, p_work.parked_at + p_work.total_timeout),
      retoma.at_least_a_second_ahead(p_now, case when p_state = 'queued' then p_work.parked_at + p_work.queue_timeout
                                                 else coalesce(p_work.running_at, p_now) + p_work.run_timeout end))
  end;
$$;

-- The time itself, or one second from now if it has passed. Null stays null.
create or replace function retoma.at_least_a_second_ahead(p_now timestamptz, p_at timestamptz) returns timestamptz immutable language sql as $$
  select case when p_at is not null then greatest(p_now + interval '1 second', p_at) end;
$$;

-- Continue the job of external work that has ended, or end it with its run. Its slots are released.
create or replace function retoma.resume_parked_job(p_now timestamptz, p_job retoma.jobs) returns void language plpgsql as $$
begin
  if p_job.stopping then
    perform retoma.end_stopping_job(p_now, p_job);
    return;
  end if;
  perform retoma.release_slots(array[(p_job.run, p_job.step, p_job.item, p_job.revision)::retoma.job_key]);
  update retoma.jobs set state = 'ready', pool = null, worker = null, code = null
   where run = p_job.run and step = p_job.step and item = p_job.item and revision = p_job.revision and state = 'parked';
end $$;

-- Record a call of a provider: `taken`, `repeated` (it called before), `expired`, or `unknown`.
create or replace function retoma.record_callback(p_hash bytea, p_body json) returns text
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_callback retoma.callbacks;
begin
  select * into v_callback from retoma.callbacks where token_hash = p_hash for update;
  if not found then
    return 'unknown';
  elsif v_callback.called_at is not null then
    return 'repeated';
  elsif v_callback.expires_at <= v_now then
    return 'expired';
  end if;
  update retoma.callbacks set called_at = v_now, body = p_body where token_hash = p_hash;
  update retoma.external_work set next_at = v_now
   where run = v_callback.run and step = v_callback.step and item = v_callback.item and revision = v_callback.revision
     and ended_at is null;
  return 'taken';
end $$;
