-- Let these runs tell of themselves as their hooks say, and owe what their start is worth. A run that has its hook
-- already was started by an earlier try, and one that is not there belongs to a key that was used before.
create or replace function retoma.hook_runs(p_now timestamptz, p_id uuid[], p_tenant int[], p_hook json[]) returns void
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_hooked uuid[];
begin
  insert into retoma.webhook_secrets (tenant, host, secret)
  select distinct on (s.tenant, s.hook ->> 'host') s.tenant, s.hook ->> 'host', retoma.new_webhook_secret()
    from unnest(p_tenant, p_hook) as s (tenant, hook)
   where s.hook is not null
   order by 1, 2
      on conflict do nothing;
  insert into retoma.endpoints (tenant, host, url, created_at)
  select distinct on (s.tenant, s.hook ->> 'url') s.tenant, s.hook ->> 'host', s.hook ->> 'url', p_now
    from unnest(p_tenant, p_hook) as s (tenant, hook)
   where s.hook is not null
   order by s.tenant, s.hook ->> 'url'
      on conflict do nothing;
  with hooked as (
    insert into retoma.hooks (run, endpoint, events, schedule, retries)
    select r.id, e.id, array(select json_array_elements_text(s.hook -> 'events')), s.hook ->> 'schedule',
           (s.hook ->> 'retries')::int
      from unnest(p_id, p_hook) as s (id, hook)
      join retoma.runs r on r.id = s.id
      join retoma.endpoints e on e.tenant = r.tenant and e.url = s.hook ->> 'url'
     order by r.id
        on conflict do nothing
    returning run
  )
  select array_agg(run) into v_hooked from hooked;
  perform retoma.owe(p_now, v_hooked, 'run.started');
end $$;

-- Tell those that have subscribed to the start of runs of these that are new. One that was told of was started by an
-- earlier try.
create or replace function retoma.tell_subscribers_of_start(p_now timestamptz, p_id uuid[]) returns void language sql as $$
  select retoma.owe(p_now, array_agg(r.id order by r.id), 'run.started')
    from retoma.runs r
   where r.id = any (p_id) and r.created_at = p_now
     and not exists (select from retoma.deliveries d where d.run = r.id and d.event = 'run.started')
  having count(*) > 0;
$$;

-- 244 random bits.
create or replace function retoma.new_webhook_secret() returns text volatile language sql as $$
  select 'whsec_' || encode(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'base64');
$$;

-- Write down what is owed for this event of these runs, in the transaction that made it true. The caller holds the
-- runs' locks.
create or replace function retoma.owe(p_now timestamptz, p_runs uuid[], p_event text) returns void
language plpgsql as $$
begin
  perform retoma.enqueue_announced(p_runs);
  perform retoma.enqueue_deliveries(p_now, p_runs, p_event, null);
end $$;

-- Whether anybody may want to know of events of this run.
create or replace function retoma.has_receivers(p_run uuid) returns boolean stable language sql as $$
  select exists (select from retoma.hooks h where h.run = p_run)
      or exists (select from retoma.endpoints e where e.events is not null);
$$;

-- The same for one kind of event.
create or replace function retoma.has_receivers_of(p_run uuid, p_tenant int, p_event text) returns boolean stable language sql as $$
  select exists (select from retoma.hooks h where h.run = p_run and p_event = any (h.events))
      or exists (select from retoma.endpoints e
                  where e.tenant in (p_tenant, -1) and e.events is not null and p_event = any (e.events));
$$;

-- One delivery for each URL that wants this event: as its run asked, or as it has subscribed. The caller holds the runs'
-- locks. A delivery that follows one that is still open waits for it at `infinity`.
create or replace function retoma.enqueue_deliveries(p_now timestamptz, p_runs uuid[], p_event text, p_data json) returns void
language plpgsql as $$
begin
  if not exists (select from retoma.hooks where run = any (p_runs))
     and not exists (select from retoma.endpoints where events is not null) then
    return;
  end if;
  -- A delivery that ends just now wakes the next one: let it see ours, or see its end.
  perform from retoma.deliveries
    where run = any (p_runs) and ended_at is null
    order by run, endpoint, seq for update;
  insert into retoma.deliveries (run, endpoint, seq, tenant, pipeline, host, event, schedule, retries,
                                 state, next_at, created_at, ended_at, data)
  select w.run, w.endpoint, coalesce(former.seq, 0) + 1, e.tenant, v.pipeline, e.host, p_event, w.schedule, w.retries,
         case when e.disabled_at is null then 'due' else 'dead' end::retoma.delivery_state,
         case when former.open then 'infinity' else greatest(p_now, e.open_until) end,
         p_now, case when e.disabled_at is not null then p_now end, p_data
    from (
      select h.run, h.endpoint, h.schedule, h.retries
        from retoma.hooks h
       where h.run = any (p_runs) and p_event = any (h.events)
      union all
      select r.id, e.id, 'standard', null
        from retoma.runs r
        join retoma.endpoints e on e.tenant in (r.tenant, -1) and e.events is not null and p_event = any (e.events)
       where r.id = any (p_runs)
         and not exists (select from retoma.hooks h
                          where h.run = r.id and h.endpoint = e.id and p_event = any (h.events))) w
    join retoma.endpoints e on e.id = w.endpoint
    join retoma.runs r on r.id = w.run
    join retoma.versions v on v.id = r.version
    cross join lateral (
      select max(d.seq) as seq, bool_or(d.ended_at is null) as open
        from retoma.deliveries d
       where d.run = w.run and d.endpoint = w.endpoint) former
   order by w.run, w.endpoint;
end $$;

-- Keep an event of a run that the caller must not lock: jobs are locked before runs, and it holds one. It is written in
-- the caller's transaction, and becomes deliveries once somebody holds the run's lock.
create or replace function retoma.announce(p_now timestamptz, p_run uuid, p_tenant int, p_event text, p_data json) returns void
language plpgsql as $$
begin
  if retoma.has_receivers_of(p_run, p_tenant, p_event) then
    insert into retoma.announcements (run, event, data, at) values (p_run, p_event, p_data, p_now);
  end if;
end $$;

-- Turn the announcements of these runs, whose locks the caller holds, into deliveries, in their order.
create or replace function retoma.enqueue_announced(p_runs uuid[]) returns void language plpgsql as $$
declare
  v_announced record;
begin
  for v_announced in
    with taken as (delete from retoma.announcements a where a.run = any (p_runs) returning a.*)
    select * from taken order by id
  loop
    perform retoma.enqueue_deliveries(v_announced.at, array[v_announced.run], v_announced.event, v_announced.data);
  end loop;
end $$;

-- The same for whatever was announced. A run that somebody holds is passed over: it is done by them, or the next time.
create or replace function retoma.enqueue_all_announced(p_limit int) returns void language plpgsql as $$
declare
  v_runs uuid[];
begin
  with announced as (
    select distinct a.run from (select run from retoma.announcements order by id limit p_limit) a
  ), locked as (
    select r.id from retoma.runs r join announced a on a.run = r.id order by r.id for update of r skip locked
  )
  select array_agg(id) into v_runs from locked;
  if v_runs is not null then
    perform retoma.enqueue_announced(v_runs);
  end if;
end $$;

-- Take up to `p_limit` deliveries that are due and send them before `p_lease` is over. No host gets more than
-- `p_each` at a time, a failing endpoint one, and tenants take turns, so that those who are slow or away do not delay
-- the others. Bitmap scans are off: one reads all that is due to a host and sorts it, which statistics from when the
-- table was small make look cheap.
create or replace function retoma.claim_deliveries(p_pipelines text[], p_limit int, p_each int, p_lease interval)
returns table (id uuid, attempt int, tries int, run uuid, seq int, event text, schedule text, retries int, body text,
               created_at timestamptz, endpoint int, url text, now timestamptz, secret text, former text)
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := retoma.now();
begin
  if exists (select from retoma.announcements) then
    perform retoma.enqueue_all_announced(1000);
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
          -- Not as `exists`, for which all endpoints would be read at once.
          and not ((select e.failures from retoma.endpoints e where e.id = d.endpoint) >= 5
                   and retoma.has_company(d, v_now, p_lease))
        order by d.next_at
        limit greatest(0, p_each - (select count(*) from retoma.deliveries s
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
       set state = 'sending', attempt = d.attempt + 1, tries = d.tries + 1, next_at = v_now + p_lease
      from due
     where d.id = due.id
    returning d.*
  ), told as (
    insert into retoma.delivery_attempts (delivery, attempt, at)
    select t.id, t.attempt, v_now from taken t
  )
  select t.id, t.attempt, t.tries, t.run, t.seq, t.event, t.schedule, t.retries, t.body, t.created_at, t.endpoint, e.url,
         v_now, s.secret, case when s.former_until > v_now then s.former end
    from taken t
    join retoma.endpoints e on e.id = t.endpoint
    join retoma.webhook_secrets s on s.tenant = t.tenant and s.host = t.host;
end $$;

-- Whether an older one, or one that is being sent, is owed to the same endpoint.
create or replace function retoma.has_company(p_delivery retoma.deliveries, p_now timestamptz, p_lease interval)
returns boolean stable language sql as $$
  select exists (
    select from retoma.deliveries o
     where o.host = p_delivery.host and o.endpoint = p_delivery.endpoint and o.pipeline = p_delivery.pipeline
       and o.id <> p_delivery.id and o.ended_at is null and o.next_at <= p_now + p_lease
       and case when o.next_at > p_now then o.state = 'sending'
                else (o.next_at, o.number) < (p_delivery.next_at, p_delivery.number) end);
$$;

-- Say how an attempt went: `delivered`, `again` after `p_delay`, `dead`, or `gone` for good with its endpoint. Gives
-- the delivery's state afterwards, and how long it waits for its next attempt; no row if the attempt is no longer the last
-- one: then nothing is changed.
-- `p_pause` holds back all that is owed to the endpoint, as its answer asked.
create or replace function retoma.record_attempt(
  p_id uuid, p_attempt int, p_outcome text, p_delay interval, p_pause interval,
  p_ms int, p_status int, p_error text, p_answer text)
returns table (state text, disabled boolean, retry_in interval)
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
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
    perform retoma.wake_next(v_now, v_delivery);
  end if;
  v_disabled := retoma.judge_endpoint(v_now, v_delivery.endpoint, p_outcome, p_pause);
  return query
  select d.state::text, v_disabled, case when d.state = 'due' then d.next_at - v_now end
    from retoma.deliveries d
   where d.id = p_id;
end $$;

create or replace function retoma.wake_next(p_now timestamptz, p_ended retoma.deliveries) returns void language sql as $$
  update retoma.deliveries d
     set next_at = greatest(p_now, (select e.open_until from retoma.endpoints e where e.id = d.endpoint))
   where d.run = p_ended.run and d.endpoint = p_ended.endpoint and d.ended_at is null and d.next_at = 'infinity'
     and d.seq = (select min(n.seq) from retoma.deliveries n
                   where n.run = p_ended.run and n.endpoint = p_ended.endpoint and n.ended_at is null);
$$;

-- The endpoint's breaker. From the fifth failure in a row nothing is sent to it for a while that doubles up to five
-- minutes; after five days of nothing else it is disabled. Gives whether it was just now.
create or replace function retoma.judge_endpoint(p_now timestamptz, p_endpoint int, p_outcome text, p_pause interval)
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
           disabled_because = case when p_outcome = 'gone' then 'it answered 410 Gone'
                                   else 'it gave nothing but failures for 5 days' end
     where id = p_endpoint;
    perform retoma.give_up_due(p_now, p_endpoint);
    return true;
  end if;
  if v_endpoint.disabled_at is not null then
    perform retoma.give_up_due(p_now, p_endpoint);
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

-- What is owed to a disabled endpoint is dead; what is being sent may still end.
create or replace function retoma.give_up_due(p_now timestamptz, p_endpoint int) returns void language plpgsql as $$
begin
  perform from retoma.deliveries
    where endpoint = p_endpoint and state = 'due'
    order by run, endpoint, seq for update;
  update retoma.deliveries set state = 'dead', ended_at = p_now
   where endpoint = p_endpoint and state = 'due';
end $$;

-- Let dead deliveries be sent again with the same id and body: one, or all of an endpoint or a URL, within a time. Those of a
-- disabled endpoint stay dead. Those of one run go out in their order again. Gives how many.
create or replace function retoma.redrive(
  p_tenant int, p_id uuid, p_endpoint int, p_url text, p_from timestamptz, p_to timestamptz) returns int
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_asked uuid[] := array(
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
  -- A delivery that ends just now wakes the next one: let it see ours, or see its end.
  perform from retoma.deliveries d
    where (d.run, d.endpoint) in (select a.run, a.endpoint from retoma.deliveries a where a.id = any (v_asked))
    order by d.run, d.endpoint, d.seq for update;
  update retoma.deliveries d
     set next_at = 'infinity'
   where d.state = 'due'
     and exists (select from retoma.deliveries f
                  where f.run = d.run and f.endpoint = d.endpoint and f.seq < d.seq
                    and f.state = 'dead' and f.id = any (v_asked));
  update retoma.deliveries d
     set state = 'due', tries = 0, ended_at = null,
         next_at = case when exists (select from retoma.deliveries f
                                      where f.run = d.run and f.endpoint = d.endpoint and f.seq < d.seq
                                        and (f.ended_at is null or f.state = 'dead' and f.id = any (v_asked)))
                        then 'infinity' else v_now end
   where d.id = any (v_asked) and d.state = 'dead';
  get diagnostics v_count = row_count;
  return v_count;
end $$;
