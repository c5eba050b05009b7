-- The one call of a worker: record outcomes, then claim new jobs, in one transaction. The calls of a link are numbered. A call
-- whose answer was lost is sent again, changes nothing, and returns 'replayed'; the worker then asks for the jobs that it
-- holds. Outcomes are sorted by key, so two calls lock rows in the same order.
create or replace function retoma.finish_and_claim(
  p_worker int, p_link int, p_call_number bigint,
  -- results
  p_run uuid[], p_step text[], p_item text[], p_revision int[], p_fence int[], p_output json[], p_items int[],
  -- the items of those results that are sources of fan-outs
  p_item_outcome int[], p_item_key text[], p_item_value json[],
  -- all other outcomes
  b_run uuid[], b_step text[], b_item text[], b_revision int[], b_fence int[],
  b_outcome text[], b_delay interval[], b_spent_ms int[], b_code text[], b_error json[], b_review json[], b_effect text[],
  -- what may be claimed
  p_queues text[], p_versions int[], p_after int, p_limit int, p_suspect boolean)
returns setof retoma.claimed_job
language plpgsql as $$
declare
  v_now timestamptz;
  v_limit int := p_limit;
  v_keep int := retoma.successors_to_keep(p_limit, p_call_number);
  v_refused int := cardinality(p_run) + cardinality(b_run);
  v_stopping uuid[];
  v_failed uuid[];
  v_events retoma.edge_event[];
  v_pooled retoma.job_key[];
  v_parked retoma.job_key[];
  v_outcomes record;
  v_results record;
  v_items record;
  v_first int;
  v_unlimited text[] := p_queues;          -- the queues whose jobs the worker may keep
  v_limited text[] := '{}';
  v_link retoma.worker_links;
  v_note retoma.claimed_job;
begin
  -- Part of the key changes now and then, so few versions of the row are read while vacuum cannot remove them.
  update retoma.worker_links set call_number = p_call_number, call_block = p_call_number / 1000
   where worker = p_worker and link = p_link and call_block = (p_call_number - 1) / 1000 and call_number = p_call_number - 1
  returning * into v_link;
  if not found then
    if not exists (select from retoma.worker_links
                    where worker = p_worker and link = p_link and call_block = p_call_number / 1000 and call_number = p_call_number) then
      raise exception 'worker % is gone', p_worker using errcode = 'RT001';
    end if;
    v_note.what := 'replayed';
    return next v_note;
    return;
  end if;
  v_now := retoma.now();
  if v_link.is_draining then
    v_limit := 0;
    v_keep := 0;
  end if;
  if exists (select from retoma.queues) then
    p_queues := retoma.open_queues(p_queues);
    v_limited := retoma.limited_queues(p_queues);
    v_unlimited := array(select unnest(p_queues) except select unnest(v_limited));
  end if;

  if cardinality(b_run) > 0 then
    b_outcome := retoma.resolve_outcomes(b_run, b_step, b_item, b_revision, b_outcome);
  end if;
  if cardinality(b_run) > 0 and cardinality(p_run) > 0 then
    -- Lock both lists in one order, which is also the order that stopping a run uses.
    perform from retoma.jobs j
       join unnest(p_run || b_run, p_step || b_step, p_item || b_item, p_revision || b_revision) as o (run, step, item, revision)
         on j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
      order by j.run, j.step, j.item, j.revision for update of j;
  end if;
  if cardinality(b_run) > 0 then
    v_outcomes := retoma.record_outcomes(p_worker, v_now, b_run, b_step, b_item, b_revision, b_fence,
                                         b_outcome, b_delay, b_spent_ms, b_code, b_error, b_review, b_effect);
    v_refused := v_refused - v_outcomes.o_accepted;
    v_stopping := v_outcomes.o_stopping;
    v_failed := v_outcomes.o_failed;
    v_events := v_outcomes.o_events;
  end if;

  if cardinality(p_run) > 0 then
    v_results := retoma.record_results(p_worker, v_now, v_unlimited, v_keep, p_run, p_step, p_item, p_revision, p_fence, p_output, p_items);
    v_refused := v_refused - v_results.o_accepted;
    v_stopping := v_stopping || v_results.o_stopping;
    v_events := v_events || v_results.o_events;
    v_pooled := v_results.o_pooled;
    if v_pooled is not null then
      perform retoma.release_slots(v_pooled);
    end if;
    if v_results.o_kept is not null then
      v_limit := v_limit - cardinality(v_results.o_kept);
      v_keep := v_keep - cardinality(v_results.o_kept);
      return query select * from retoma.describe_kept_jobs(v_results.o_kept);
    end if;
  end if;

  if cardinality(p_item_outcome) > 0 then
    v_items := retoma.create_items(p_worker, v_now, v_unlimited, v_keep, v_events, p_item_outcome, p_item_key, p_item_value);
    v_events := v_events || v_items.o_events;
    if v_items.o_kept is not null then
      v_limit := v_limit - cardinality(v_items.o_kept);
      return query select * from retoma.describe_kept_jobs(v_items.o_kept);
    end if;
  end if;

  if v_events is not null or v_failed is not null then
    perform retoma.propagate(v_now, v_events, v_failed);
  end if;
  perform retoma.refresh_after_outcomes(v_now, p_run || b_run, v_stopping);
  if v_refused > 0 then
    v_note.what := 'refused';
    v_note.rejected := v_refused;
    return next v_note;
  end if;
  if v_limited <> '{}' and v_limit > 0 then
    perform retoma.lock_queues(v_limited);
  end if;
  if 'RATE_LIMITED' = any (b_code) then
    perform retoma.pause_pools(v_now, b_run, b_step, b_delay, retoma.codes_for_pools(b_code, b_error));
  end if;
  if b_code && '{PROVIDER_DOWN, PROVIDER_REJECTED}' then
    perform retoma.record_provider_failures(v_now, b_run, b_step, b_item, b_revision, b_delay, retoma.codes_for_pools(b_code, b_error));
  end if;
  if 'parked' = any (b_outcome) then
    v_parked := array(
      select (b.run, b.step, b.item, b.revision)::retoma.job_key
        from unnest(b_run, b_step, b_item, b_revision, b_outcome) as b (run, step, item, revision, outcome)
       where b.outcome = 'parked');
    v_pooled := v_pooled || v_parked;
  end if;
  if v_pooled is not null then
    perform retoma.record_provider_successes(v_pooled);
  end if;
  if v_limit > 0 then
    -- Each call starts with another queue, so a busy queue does not starve the others.
    v_first := p_call_number % greatest(1, cardinality(p_queues)) + 1;
    p_queues := p_queues[v_first:] || p_queues[:v_first - 1];
    if v_limited = '{}' then
      return query select * from retoma.claim_for_link(v_link, v_now, p_queues, p_versions, p_after, v_limit, p_suspect);
    else
      return query select * from retoma.claim_within_limits(v_link, v_now, p_queues, v_limited, p_versions, p_after, v_limit, p_suspect);
    end if;
  end if;
  if v_parked is not null then
    perform retoma.recheck_children(v_now, v_parked);
  end if;
end $$;

-- How many successors may stay with this worker: not all, so other ready jobs never starve.
create or replace function retoma.successors_to_keep(p_limit int, p_call_number bigint) returns int immutable language sql as $$
  select case when p_limit < 8 and p_call_number % 8 = 0 then 0 else p_limit - p_limit / 8 end;
$$;

-- A kept job reads only what its worker has in memory.
create or replace function retoma.describe_kept_jobs(p_kept retoma.kept_job[]) returns setof retoma.claimed_job stable language sql as $$
  select 'kept', null::int, null::int, k.run, k.step, k.item, k.revision, 1, 1, 0, 0, 0, 0, k.version, k.tenant, null::int, null::json,
         null::json, null::json[]
    from unnest(p_kept) k;
$$;
