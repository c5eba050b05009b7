-- Add the webhooks of these runs and enqueue the deliveries of their start. A run that has its webhook already was started by
-- an earlier try of this call. A run that does not exist belongs to a key that was used before.
create or replace function retoma.add_run_webhooks(p_now timestamptz, p_id uuid[], p_tenant int[], p_webhook json[]) returns void
language plpgsql as $$
declare
  v_added uuid[];
begin
  insert into retoma.webhook_secrets (tenant, host, secret)
  select distinct on (s.tenant, s.webhook ->> 'host') s.tenant, s.webhook ->> 'host', retoma.new_webhook_secret()
    from unnest(p_tenant, p_webhook) as s (tenant, webhook)
   where s.webhook is not null
   order by 1, 2
      on conflict do nothing;
  insert into retoma.endpoints (tenant, host, url, created_at)
  select distinct on (s.tenant, s.webhook ->> 'url') s.tenant, s.webhook ->> 'host', s.webhook ->> 'url', p_now
    from unnest(p_tenant, p_webhook) as s (tenant, webhook)
   where s.webhook is not null
   order by s.tenant, s.webhook ->> 'url'
      on conflict do nothing;
  with added as (
    insert into retoma.run_webhooks (run, endpoint, events, schedule, retries)
    select r.id, e.id, array(select json_array_elements_text(s.webhook -> 'events')), s.webhook ->> 'schedule',
           (s.webhook ->> 'retries')::int
      from unnest(p_id, p_webhook) as s (id, webhook)
      join retoma.runs r on r.id = s.id
      join retoma.endpoints e on e.tenant = r.tenant and e.url = s.webhook ->> 'url'
     order by r.id
        on conflict do nothing
    returning run
  )
  select array_agg(run) into v_added from added;
  perform retoma.enqueue_deliveries(p_now, v_added, 'run.started');
end $$;

-- Enqueue the start events of new runs for subscribed endpoints. A run with such a delivery was started by an earlier try of
-- this call.
create or replace function retoma.enqueue_start_deliveries(p_now timestamptz, p_id uuid[]) returns void language sql as $$
  select retoma.enqueue_deliveries(p_now, array_agg(r.id order by r.id), 'run.started')
    from retoma.runs r
   where r.id = any (p_id) and r.created_at = p_now
     and not exists (select from retoma.deliveries d where d.run = r.id and d.event = 'run.started')
  having count(*) > 0;
$$;

-- 244 random bits.
create or replace function retoma.new_webhook_secret() returns text volatile language sql as $$
  select 'whsec_' || encode(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'base64');
$$;

-- Enqueue the deliveries of this event of these runs, in the transaction of the event. The caller holds the runs' locks.
create or replace function retoma.enqueue_deliveries(p_now timestamptz, p_runs uuid[], p_event text) returns void
language plpgsql as $$
begin
  perform retoma.enqueue_pending_events(p_runs);
  perform retoma.insert_deliveries(p_now, p_runs, p_event, null);
end $$;

-- Whether any endpoint may receive events of this run.
create or replace function retoma.has_subscribers(p_run uuid) returns boolean stable language sql as $$
  select exists (select from retoma.run_webhooks h where h.run = p_run)
      or exists (select from retoma.endpoints e where e.events is not null);
$$;

-- The same for one event.
create or replace function retoma.has_subscribers_to(p_run uuid, p_tenant int, p_event text) returns boolean stable language sql as $$
  select exists (select from retoma.run_webhooks h where h.run = p_run and p_event = any (h.events))
      or exists (select from retoma.endpoints e
                  where e.tenant in (p_tenant, -1) and e.events is not null and p_event = any (e.events));
$$;

-- Insert one delivery for each URL that receives this event, through its run or its subscription. The caller holds the runs'
-- locks. A delivery that follows an open one waits for it at `infinity`.
create or replace function retoma.insert_deliveries(p_now timestamptz, p_runs uuid[], p_event text, p_data json) returns void
language plpgsql as $$
begin
  if not exists (select from retoma.run_webhooks where run = any (p_runs))
     and not exists (select from retoma.endpoints where events is not null) then
    return;
  end if;
  -- A delivery that ends at the same time releases the next one: let it see ours, or see its end.
  perform from retoma.deliveries
    where run = any (p_runs) and ended_at is null
    order by run, endpoint, seq for update;
  insert into retoma.deliveries (run, endpoint, seq, tenant, pipeline, host, event, schedule, retries,
                                 state, next_at, created_at, ended_at, data)
  select w.run, w.endpoint, coalesce(previous.seq, 0) + 1, e.tenant, v.pipeline, e.host, p_event, w.schedule, w.retries,
         case when e.disabled_at is null then 'due' else 'dead' end::retoma.delivery_state,
         case when previous.open then 'infinity' else greatest(p_now, e.open_until) end,
         p_now, case when e.disabled_at is not null then p_now end, p_data
    from (
      select h.run, h.endpoint, h.schedule, h.retries
        from retoma.run_webhooks h
       where h.run = any (p_runs) and p_event = any (h.events)
      union all
      select r.id, e.id, 'standard', null
        from retoma.runs r
        join retoma.endpoints e on e.tenant in (r.tenant, -1) and e.events is not null and p_event = any (e.events)
       where r.id = any (p_runs)
         and not exists (select from retoma.run_webhooks h
                          where h.run = r.id and h.endpoint = e.id and p_event = any (h.events))) w
    join retoma.endpoints e on e.id = w.endpoint
    join retoma.runs r on r.id = w.run
    join retoma.versions v on v.id = r.version
    cross join lateral (
      select max(d.seq) as seq, bool_or(d.ended_at is null) as open
        from retoma.deliveries d
       where d.run = w.run and d.endpoint = w.endpoint) previous
   order by w.run, w.endpoint;
end $$;

-- Store an event of a run that the caller must not lock, because it holds a job's lock and jobs are locked before runs. The
-- event is written in the caller's transaction, and becomes deliveries once somebody holds the run's lock.
create or replace function retoma.queue_webhook_event(p_now timestamptz, p_run uuid, p_tenant int, p_event text, p_data json) returns void
language plpgsql as $$
begin
  if retoma.has_subscribers_to(p_run, p_tenant, p_event) then
    insert into retoma.pending_webhook_events (run, event, data, at) values (p_run, p_event, p_data, p_now);
  end if;
end $$;

-- Turn the pending events of these runs into deliveries, in their order. The caller holds the runs' locks.
create or replace function retoma.enqueue_pending_events(p_runs uuid[]) returns void language plpgsql as $$
declare
  v_pending record;
begin
  for v_pending in
    with taken as (delete from retoma.pending_webhook_events a where a.run = any (p_runs) returning a.*)
    select * from taken order by id
  loop
    perform retoma.insert_deliveries(v_pending.at, array[v_pending.run], v_pending.event, v_pending.data);
  end loop;
end $$;

-- The same for all pending events. Skips a run that is locked: its holder enqueues them, or the next call does.
create or replace function retoma.enqueue_all_pending_events(p_limit int) returns void language plpgsql as $$
declare
  v_runs uuid[];
begin
  with announced as (
    select distinct a.run from (select run from retoma.pending_webhook_events order by id limit p_limit) a
  ), locked as (
    select r.id from retoma.runs r join announced a on a.run = r.id order by r.id for update of r skip locked
  )
  select array_agg(id) into v_runs from locked;
  if v_runs is not null then
    perform retoma.enqueue_pending_events(v_runs);
  end if;
end $$;

-- Claim up to `p_limit` deliveries that are due; the caller sends them before `p_lease` ends. A host gets at most `p_per_host`
-- at a time, a failing endpoint one, and tenants take turns, so slow or unreachable receivers do not delay the others. Bitmap
-- scans are off: one would read and sort everything that is due to a host, which looks cheap by statistics from when the table
-- was small.
create or replace function retoma.claim_deliveries(p_pipelines text[], p_limit int, p_per_host int, p_lease interval)
returns table (id uuid, attempt int, schedule_attempt int, run uuid, seq int, event text, schedule text, retries int, body text,
               created_at timestamptz, endpoint int, url text, now timestamptz, secret text, previous_secret text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := retoma.now();
begin
  if exists (select from retoma.pending_webhook_events) then
    perform retoma.enqueue_all_pending_events(1000);
  end if;
  return query
  with recursive hosts as (
    (select d.host from retoma.deliveries d where d.ended_at is null order by d.host limit 1)
    union all
    select (select d.host from retoma.deliveries d where d.ended_at is null and d.host > h.host order by d.host limit 1)
      from hosts h where h.host is not null
  ), candidates as materialized (
    select c.id, row_number() over (partition by c.tenant order by random()) as turn
      from (select h.host from hosts h where h.host is not null order by random() limit 1000) h
     cross join lateral (
       select d.id, d.tenant
         from retoma.deliveries d
        where d.host = h.host and d.ended_at is null and d.next_at <= v_now and d.pipeline = any (p_pipelines)
          -- Not as `exists`, which would read all endpoints at once.
          and not ((select e.failures from retoma.endpoints e where e.id = d.endpoint) >= 5
                   and retoma.has_earlier_delivery(d, v_now, p_lease))
        order by d.next_at
        limit greatest(0, p_per_host - (select count(*) from retoma.deliveries s
                                     where s.host = h.host and s.state = 'sending' and s.ended_at is null
                                       and s.next_at > v_now and s.next_at <= v_now + p_lease))) c
  ), due as materialized (
    select d.id
      from candidates c
      join retoma.deliveries d on d.id = c.id
     where d.ended_at is null and d.next_at <= v_now
     order by c.turn, random()
     limit p_limit
       for update of d skip locked
  ), taken as (
    update retoma.deliveries d
       set state = 'sending', attempt = d.attempt + 1, schedule_attempt = d.schedule_attempt + 1, next_at = v_now + p_lease
      from due
     where d.id = due.id
    returning d.*
  ), logged as (
    insert into retoma.delivery_attempts (delivery, attempt, at)
    select t.id, t.attempt, v_now from taken t
  )
  select t.id, t.attempt, t.schedule_attempt, t.run, t.seq, t.event, t.schedule, t.retries, t.body, t.created_at, t.endpoint, e.url,
         v_now, s.secret, case when s.previous_secret_until > v_now then s.previous_secret end
    from taken t
    join retoma.endpoints e on e.id = t.endpoint
    join retoma.webhook_secrets s on s.tenant = t.tenant and s.host = t.host;
end $$;

-- Whether an older delivery, or one that is being sent, exists for the same endpoint.
create or replace function retoma.has_earlier_delivery(p_delivery retoma.deliveries, p_now timestamptz, p_lease interval)
returns boolean stable language sql as $$
  select exists (
    select from retoma.deliveries o
     where o.host = p_delivery.host and o.endpoint = p_delivery.endpoint and o.pipeline = p_delivery.pipeline
       and o.id <> p_delivery.id and o.ended_at is null and o.next_at <= p_now + p_lease
       and case when o.next_at > p_now then o.state = 'sending'
                else (o.next_at, o.number) < (p_delivery.next_at, p_delivery.number) end);
$$;

-- Record the outcome of an attempt: `delivered`, `again` after `p_delay`, `dead`, or `gone` together with its endpoint. Returns
-- the delivery's state and how long it waits for its next attempt. Returns no row, and changes nothing, if the attempt is no
-- longer the last one. `p_pause` delays everything for the endpoint, as its response asked.
create or replace function retoma.record_delivery_attempt(
  p_id uuid, p_attempt int, p_outcome text, p_delay interval, p_pause interval,
  p_ms int, p_status int, p_error text, p_answer text)
returns table (state text, disabled boolean, retry_in interval)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := retoma.now();
  v_delivery retoma.deliveries;
  v_disabled boolean := false;
begin
  update retoma.deliveries d
     set state = case p_outcome when 'delivered' then 'delivered' when 'again' then 'due' else 'dead' end::retoma.delivery_state,
         next_at = case p_outcome when 'again' then v_now + p_delay else d.next_at end,
         ended_at = case when p_outcome <> 'again' then v_now end
   where d.id = p_id and d.attempt = p_attempt and d.state = 'sending'
  returning d.* into v_delivery;
  if not found then
    return;
  end if;
  update retoma.delivery_attempts a
     set ms = p_ms, status = p_status, error = p_error, answer = p_answer
   where a.delivery = p_id and a.attempt = p_attempt;
  if v_delivery.ended_at is not null then
    perform retoma.release_next_delivery(v_now, v_delivery);
  end if;
  v_disabled := retoma.update_endpoint_breaker(v_now, v_delivery.endpoint, p_outcome, p_pause);
  return query
  select d.state::text, v_disabled, case when d.state = 'due' then d.next_at - v_now end
    from retoma.deliveries d
   where d.id = p_id;
end $$;

create or replace function retoma.release_next_delivery(p_now timestamptz, p_ended retoma.deliveries) returns void language sql as $$
  update retoma.deliveries d
     set next_at = greatest(p_now, (select e.open_until from retoma.endpoints e where e.id = d.endpoint))
   where d.run = p_ended.run and d.endpoint = p_ended.endpoint and d.ended_at is null and d.next_at = 'infinity'
     and d.seq = (select min(n.seq) from retoma.deliveries n
                   where n.run = p_ended.run and n.endpoint = p_ended.endpoint and n.ended_at is null);
$$;

-- The circuit breaker of an endpoint. From the fifth failure in a row nothing is sent for a while, which doubles up to five
-- minutes. After five days of failures only, the endpoint is disabled. Returns whether this call disabled it.
create or replace function retoma.update_endpoint_breaker(p_now timestamptz, p_endpoint int, p_outcome text, p_pause interval)
returns boolean language plpgsql as $$
declare
  v_endpoint retoma.endpoints;
begin
  if p_outcome = 'delivered' then
    update retoma.endpoints set failures = 0, failing_since = null, open_until = null
     where id = p_endpoint and failures > 0;
    return false;
  end if;
  update retoma.endpoints e
     set failures = e.failures + 1,
         failing_since = coalesce(e.failing_since, p_now),
         open_until = greatest(
           e.open_until,
           p_now + p_pause,
           case when e.failures >= 4 then p_now + least(interval '5 minutes', interval '10 seconds' * 2 ^ least(e.failures - 4, 10)) end)
   where e.id = p_endpoint
  returning * into v_endpoint;
  if v_endpoint.disabled_at is null
     and (p_outcome = 'gone' or v_endpoint.failures >= 10 and v_endpoint.failing_since <= p_now - interval '5 days') then
    update retoma.endpoints
       set disabled_at = p_now,
           disabled_because = case when p_outcome = 'gone' then 'it responded with 410 Gone'
                                   else 'every attempt failed for 5 days' end
     where id = p_endpoint;
    perform retoma.dead_letter_due_deliveries(p_now, p_endpoint);
    return true;
  end if;
  if v_endpoint.disabled_at is not null then
    perform retoma.dead_letter_due_deliveries(p_now, p_endpoint);
    return false;
  end if;
  if v_endpoint.open_until is not null then
    perform from retoma.deliveries
      where endpoint = p_endpoint and state = 'due' and next_at < v_endpoint.open_until
      order by run, endpoint, seq for update;
    update retoma.deliveries set next_at = v_endpoint.open_until
     where endpoint = p_endpoint and state = 'due' and next_at < v_endpoint.open_until;
  end if;
  return false;
end $$;

-- Deliveries that are due to a disabled endpoint are dead. Those being sent may still finish.
create or replace function retoma.dead_letter_due_deliveries(p_now timestamptz, p_endpoint int) returns void language plpgsql as $$
begin
  perform from retoma.deliveries
    where endpoint = p_endpoint and state = 'due'
    order by run, endpoint, seq for update;
  update retoma.deliveries set state = 'dead', ended_at = p_now
   where endpoint = p_endpoint and state = 'due';
end $$;

-- Redeliver dead deliveries with the same id and body: one, or all of an endpoint or URL, within a time range. Those of a
-- disabled endpoint stay dead. Those of one run are sent in their order again. Returns how many.
create or replace function retoma.redeliver(
  p_tenant int, p_id uuid, p_endpoint int, p_url text, p_from timestamptz, p_to timestamptz) returns int
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_chosen uuid[] := array(
    select d.id
      from retoma.deliveries d
      join retoma.endpoints e on e.id = d.endpoint
     where d.state = 'dead' and e.disabled_at is null
       and (p_tenant is null or d.tenant = p_tenant)
       and (p_id is null or d.id = p_id)
       and (p_endpoint is null or d.endpoint = p_endpoint)
       and (p_url is null or e.url = p_url)
       and (p_from is null or d.created_at >= p_from)
       and (p_to is null or d.created_at < p_to));
  v_count int;
begin
  -- A delivery that ends at the same time releases the next one: let it see ours, or see its end.
  perform from retoma.deliveries d
    where (d.run, d.endpoint) in (select a.run, a.endpoint from retoma.deliveries a where a.id = any (v_chosen))
    order by d.run, d.endpoint, d.seq for update;
  update retoma.deliveries d
     set next_at = 'infinity'
   where d.state = 'due'
     and exists (select from retoma.deliveries f
                  where f.run = d.run and f.endpoint = d.endpoint and f.seq < d.seq
                    and f.state = 'dead' and f.id = any (v_chosen));
  update retoma.deliveries d
     set state = 'due', schedule_attempt = 0, ended_at = null,
         next_at = case when exists (select from retoma.deliveries f
                                      where f.run = d.run and f.endpoint = d.endpoint and f.seq < d.seq
                                        and (f.ended_at is null or f.state = 'dead' and f.id = any (v_chosen)))
                        then 'infinity' else v_now end
   where d.id = any (v_chosen) and d.state = 'dead';
  get diagnostics v_count = row_count;
  return v_count;
end $$;
