-- Record what becomes of a due time of a schedule, start its run, and set the next due time: all in one transaction, so a crash
-- cannot separate them. Returns no row, and does nothing, if another process has the schedule or has done it already, or if the
-- schedule was changed since the caller read it. With `p_reason` nothing starts. `p_missed` due times from `p_next_at` on are too
-- old to start; without `p_due_at`, there are only these.
create or replace function retoma.fire_schedule(
  p_schedule int, p_revision int, p_next_at timestamptz, p_missed int, p_due_at timestamptz, p_reason text, p_message text, p_key text,
  p_run uuid, p_version int, p_input json, p_digest bytea, p_title text, p_following timestamptz, p_following_start timestamptz,
  p_keep int)
returns table (run uuid, reason text, message text, late_seconds double precision) language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_schedule retoma.schedules;
  v_run uuid;
  v_reason text := p_reason;
  v_late double precision;
begin
  -- Another process that holds the row is firing it, or a person is changing it.
  select * into v_schedule from retoma.schedules s
   where s.id = p_schedule and s.revision = p_revision and s.next_at = p_next_at and s.starts_at <= v_now and s.paused_at is null
     for update skip locked;
  if not found then
    return;
  end if;
  if p_missed > 0 then
    perform retoma.record_occurrence(p_schedule, p_next_at, '', p_missed, null, null, 'missed', null, p_keep);
    perform retoma.count_schedule_starts(v_schedule.pipeline, 'missed', p_missed, 0);
  end if;
  if p_due_at is not null then
    if v_reason is null and v_schedule.overlap = 'skip' and retoma.is_run_open(v_schedule.last_run) then
      v_reason := 'overlapping';
    end if;
    if v_reason is null then
      -- The key names the due time: even if the schedule is set back to a time that was started before, its run exists.
      v_run := retoma.start_scheduled_run(v_schedule, p_key, p_run, p_version, p_input, p_digest, p_title);
      v_late := extract(epoch from v_now - case when p_due_at = p_next_at then v_schedule.starts_at else p_due_at end);
    end if;
    perform retoma.record_occurrence(p_schedule, p_due_at, '', 1, null, v_run, v_reason, p_message, p_keep);
    perform retoma.count_schedule_starts(v_schedule.pipeline, coalesce(v_reason, 'started'), 1, coalesce(v_late, 0));
  end if;
  update retoma.schedules s
     set next_at = p_following, starts_at = p_following_start, last_run = coalesce(v_run, s.last_run),
         last_due_at = case when v_run is null then s.last_due_at else p_due_at end
   where s.id = p_schedule;
  return query select v_run, v_reason, p_message, v_late;
end $$;

-- Start a run of a schedule now. Returns its id, and whether it is new: the same key returns the same run.
create or replace function retoma.trigger_schedule(
  p_schedule int, p_trigger text, p_by text, p_key text, p_run uuid, p_version int, p_input json, p_digest bytea, p_title text, p_keep int)
returns table (run uuid, created boolean) language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_schedule retoma.schedules;
  v_run uuid;
begin
  select * into v_schedule from retoma.schedules s where s.id = p_schedule for update;
  if not found then
    return;
  end if;
  v_run := retoma.start_scheduled_run(v_schedule, p_key, p_run, p_version, p_input, p_digest, p_title);
  -- A call that is repeated after a lost answer has the same trigger.
  if v_run = p_run and not exists (select from retoma.schedule_occurrences o where o.schedule = p_schedule and o.trigger = p_trigger) then
    perform retoma.record_occurrence(p_schedule, v_now, p_trigger, 1, p_by, v_run, null, null, p_keep);
    update retoma.schedules s set last_run = v_run where s.id = p_schedule;
  end if;
  return query select v_run, v_run = p_run;
end $$;

create or replace function retoma.start_scheduled_run(
  p_schedule retoma.schedules, p_key text, p_run uuid, p_version int, p_input json, p_digest bytea, p_title text)
returns uuid language sql as $$
  select s.started
    from retoma.start_runs(array[p_run], array[p_schedule.tenant], array[p_version], array[p_input], array[p_key], array[p_digest],
                           '{}', array[0], '{}', '{}', '{}', '{}', array[p_title], true) s;
$$;

create or replace function retoma.is_run_open(p_run uuid) returns boolean stable language sql as $$
  select exists (select from retoma.runs r where r.id = p_run and r.ended_at is null);
$$;

-- Keeps the last `p_keep` occurrences of a schedule.
create or replace function retoma.record_occurrence(
  p_schedule int, p_due_at timestamptz, p_trigger text, p_count int, p_by text, p_run uuid, p_reason text, p_message text, p_keep int)
returns void language sql as $$
  insert into retoma.schedule_occurrences (schedule, due_at, trigger, recorded_at, count, triggered_by, run, reason, message)
  values (p_schedule, p_due_at, p_trigger, retoma.now(), p_count, p_by, p_run, p_reason, p_message)
      on conflict do nothing;
  delete from retoma.schedule_occurrences o
   where o.schedule = p_schedule
     and o.due_at < (select k.due_at from retoma.schedule_occurrences k
                      where k.schedule = p_schedule order by k.due_at desc offset p_keep - 1 limit 1);
$$;

create or replace function retoma.count_schedule_starts(p_pipeline text, p_outcome text, p_count int, p_late double precision)
returns void language sql as $$
  insert into retoma.schedule_counters as c (pipeline, outcome, count, late_seconds)
  values (p_pipeline, p_outcome, p_count, p_late)
      on conflict (pipeline, outcome) do update
     set count = c.count + excluded.count, late_seconds = c.late_seconds + excluded.late_seconds;
$$;

-- Let a paused schedule start runs again. The times at which it was due during the pause are one occurrence that started nothing.
-- Returns whether it was paused and not changed since the caller read it.
create or replace function retoma.resume_schedule(
  p_schedule int, p_revision int, p_next_at timestamptz, p_starts_at timestamptz, p_skipped int, p_by text, p_keep int)
returns boolean language plpgsql as $$
declare
  v_schedule retoma.schedules;
begin
  select * into v_schedule from retoma.schedules s
   where s.id = p_schedule and s.revision = p_revision and s.paused_at is not null for update;
  if not found then
    return false;
  end if;
  if p_skipped > 0 then
    perform retoma.record_occurrence(p_schedule, v_schedule.next_at, '', p_skipped, null, null, 'paused', null, p_keep);
    perform retoma.count_schedule_starts(v_schedule.pipeline, 'paused', p_skipped, 0);
  end if;
  update retoma.schedules s
     set paused_at = null, paused_by = null, pause_reason = null, next_at = p_next_at, starts_at = p_starts_at,
         revision = s.revision + 1, changed_at = retoma.now(), changed_by = p_by
   where s.id = p_schedule;
  return true;
end $$;
