-- The one call of a worker: give back what ended, take what comes next. All of it or nothing is committed.
-- Calls of a lane are numbered: one whose answer was lost is sent again, changes nothing, and is answered
-- with 'replayed'; the worker then asks for what it holds. Outcomes come sorted by key, so that two calls
-- lock rows in the same order.
create or replace function retoma.exchange(
  p_worker int, p_lane int, p_call bigint,
  -- results
  p_run uuid[], p_step text[], p_item text[], p_revision int[], p_fence int[], p_output json[], p_items int[],
  -- the items of those results that are sources of fan-outs
  p_item_outcome int[], p_item_key text[], p_item_value json[],
  -- every other outcome
  b_run uuid[], b_step text[], b_item text[], b_revision int[], b_fence int[],
  b_outcome text[], b_delay interval[], b_spent_ms int[], b_code text[], b_error json[],
  -- what may be claimed
  p_queues text[], p_versions int[], p_after int, p_room int, p_suspect boolean)
returns setof retoma.claimed
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz;
  v_room int := p_room;
  v_keep int := retoma.keep_of(p_room, p_call);
  v_refused int := cardinality(p_run) + cardinality(b_run);
  v_stopping uuid[];
  v_failed uuid[];
  v_motions retoma.motion[];
  v_pooled retoma.handle[];
  v_back record;
  v_done record;
  v_made record;
  v_first int;
  v_lane retoma.lanes;
begin
  -- A part of the key changes now and then, so that few versions of the row are read where none can be vacuumed.
  update retoma.lanes set call = p_call, part = p_call / 1000
   where worker = p_worker and lane = p_lane and part = (p_call - 1) / 1000 and call = p_call - 1
  returning * into v_lane;
  if not found then
    if not exists (select from retoma.lanes
                    where worker = p_worker and lane = p_lane and part = p_call / 1000 and call = p_call) then
      raise exception 'worker % is gone', p_worker using errcode = 'RT001';
    end if;
    return query select 'replayed', null::uuid, null, null, null::int, null::int, null::int, null::int, null::int,
                        null::int, null::int, null::int, null::json, null::json, null::json[];
    return;
  end if;
  v_now := retoma.now();

  if cardinality(b_run) > 0 then
    b_outcome := retoma.outcomes_that_count(b_run, b_step, b_item, b_revision, b_outcome);
  end if;
  if cardinality(b_run) > 0 and cardinality(p_run) > 0 then
    -- Both lists in one order, as whoever stops a run does.
    perform from retoma.jobs j
       join unnest(p_run || b_run, p_step || b_step, p_item || b_item, p_revision || b_revision) as o (run, step, item, revision)
         on j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
      order by j.run, j.step, j.item, j.revision for update of j;
  end if;
  if cardinality(b_run) > 0 then
    v_back := retoma.set_back(p_worker, v_now, b_run, b_step, b_item, b_revision, b_fence,
                              b_outcome, b_delay, b_spent_ms, b_code, b_error);
    v_refused := v_refused - v_back.o_accepted;
    v_stopping := v_back.o_stopping;
    v_failed := v_back.o_failed;
    v_motions := v_back.o_motions;
  end if;

  if cardinality(p_run) > 0 then
    v_done := retoma.succeed(p_worker, v_now, p_queues, v_keep, p_run, p_step, p_item, p_revision, p_fence, p_output, p_items);
    v_refused := v_refused - v_done.o_accepted;
    v_stopping := v_stopping || v_done.o_stopping;
    v_motions := v_motions || v_done.o_motions;
    v_pooled := v_done.o_pooled;
    if v_pooled is not null then
      perform retoma.release(v_pooled);
    end if;
    if v_done.o_kept is not null then
      v_room := v_room - cardinality(v_done.o_kept);
      v_keep := v_keep - cardinality(v_done.o_kept);
      return query select * from retoma.tell_kept(v_done.o_kept);
    end if;
  end if;

  if cardinality(p_item_outcome) > 0 then
    v_made := retoma.expand(p_worker, v_now, p_queues, v_keep, v_motions, p_item_outcome, p_item_key, p_item_value);
    v_motions := v_motions || v_made.o_motions;
    if v_made.o_kept is not null then
      v_room := v_room - cardinality(v_made.o_kept);
      return query select * from retoma.tell_kept(v_made.o_kept);
    end if;
  end if;

  if v_motions is not null or v_failed is not null then
    perform retoma.settle(v_now, v_motions, v_failed);
  end if;
  if v_stopping is not null then
    perform retoma.close_runs(v_now, v_stopping);
  end if;
  -- People may be asked in these runs, or have just been.
  if exists (select from retoma.reviews v where v.run = any (p_run || b_run) and v.applied_at is null) then
    perform retoma.restate(p_run || b_run);
  end if;
  if v_refused > 0 then
    return query select 'refused', null::uuid, null, null, null::int, v_refused, null::int, null::int, null::int,
                        null::int, null::int, null::int, null::json, null::json, null::json[];
  end if;
  if 'RATE_LIMITED' = any (b_code) then
    perform retoma.pause_pools(v_now, b_run, b_step, b_delay, b_code);
  end if;
  if b_code && '{PROVIDER_DOWN, PROVIDER_REFUSES}' then
    perform retoma.note_failures(v_now, b_run, b_step, b_item, b_revision, b_delay, b_code);
  end if;
  if 'parked' = any (b_outcome) then
    v_pooled := v_pooled || array(
      select (b.run, b.step, b.item, b.revision)::retoma.handle
        from unnest(b_run, b_step, b_item, b_revision, b_outcome) as b (run, step, item, revision, outcome)
       where b.outcome = 'parked');
  end if;
  if v_pooled is not null then
    perform retoma.note_successes(v_pooled);
  end if;
  if v_room > 0 then
    -- Another queue comes first in every call, so that a busy one does not starve the others.
    v_first := p_call % greatest(1, cardinality(p_queues)) + 1;
    return query select * from retoma.take_in_time(
      v_lane, v_now, p_queues[v_first:] || p_queues[:v_first - 1], p_versions, p_after, v_room, p_suspect);
  end if;
end $$;

-- How many successors may stay with this worker: a part, so that other ready work is never starved.
create or replace function retoma.keep_of(p_room int, p_call bigint) returns int immutable language sql as $$
  select case when p_room < 8 and p_call % 8 = 0 then 0 else p_room - p_room / 8 end;
$$;

-- A kept job reads only what its worker has at hand.
create or replace function retoma.tell_kept(p_kept retoma.kept[]) returns setof retoma.claimed stable language sql as $$
  select 'kept', k.run, k.step, k.item, k.revision, 1, 1, 0, 0, 0, k.version, k.tenant, null::json, null::json, null::json[]
    from unnest(p_kept) k;
$$;
