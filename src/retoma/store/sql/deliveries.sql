-- name: claim_deliveries
-- Claim deliveries that are due, with everything needed to send them.
select id, attempt, schedule_attempt, run, seq, event, schedule, retries, body, created_at, endpoint, url, now,
       secret, previous_secret
  from retoma.claim_deliveries(:pipelines::text[], :limit, :per_host, :lease);

-- name: freeze_body
-- Store the body, unless one is stored already, if this attempt still owns the delivery.
update retoma.deliveries
   set body = coalesce(body, :body)
 where id = :id and attempt = :attempt and state = 'sending'
returning body;

-- name: record_attempt
-- Record the outcome of an attempt. Returns no row if another sender has claimed the delivery.
select state, disabled, retry_in
  from retoma.record_delivery_attempt(:id, :attempt, :outcome, :delay, :pause, :ms, :status, :error, :answer);

-- name: list_deliveries
-- Newest first, after the last one of the previous page.
select d.id, d.run, r.title as run_title, coalesce(t.name, '*') as tenant, d.pipeline, d.event, d.seq, d.endpoint, e.url, d.state::text as state, d.attempt,
       case when d.ended_at is null and d.next_at < 'infinity' then d.next_at end as next_at,
       d.created_at, d.ended_at, a.status,
       coalesce(a.error, case when d.state = 'dead' then 'the endpoint is disabled: ' || e.disabled_because end) as error
  from retoma.deliveries d
  left join retoma.tenants t on t.id = d.tenant
  join retoma.endpoints e on e.id = d.endpoint
  left join retoma.runs r on r.id = d.run
  left join lateral (
    select a.status, a.error
      from retoma.delivery_attempts a
     where a.delivery = d.id
     order by a.attempt desc
     limit 1) a on true
 where (:tenant::int is null or d.tenant = :tenant)
   and (:tenants::int[] is null or d.tenant = any (:tenants))
   and (:states::text[] is null or d.state::text = any (:states))
   and (:run::uuid is null or d.run = :run)
   and (:pipelines::text[] is null or d.pipeline = any (:pipelines))
   and (:id::uuid is null or d.id = :id)
   and (:endpoint::int is null or d.endpoint = :endpoint)
   and (:before::uuid is null or d.number < (select b.number from retoma.deliveries b where b.id = :before))
 order by d.number desc
 limit :limit;

-- name: get_delivery_content
-- The body, once there is one, and the data of the event, besides its run.
select body, data::text as data
  from retoma.deliveries
 where id = :id;

-- name: list_delivery_attempts
select attempt, at, ms, status, error, answer
  from retoma.delivery_attempts
 where delivery = :id
 order by attempt;

-- name: find_deliveries_by_id_range
-- The newest deliveries whose ids are in this range.
select id
  from retoma.deliveries
 where id between :first and :last and (:tenants::int[] is null or tenant = any (:tenants))
 order by number desc
 limit :limit;

-- name: redeliver
-- Redeliver dead deliveries. Returns how many.
select retoma.redeliver(:tenant, :id, :endpoint, :url, :since, :until) as deliveries;

-- name: list_endpoints
select e.id, coalesce(t.name, '*') as tenant, e.url, e.created_at, e.failures, e.failing_since, e.open_until,
       e.disabled_at, e.disabled_because, e.events,
       (select count(*) from retoma.deliveries d where d.endpoint = e.id and d.ended_at is null) as due,
       (select count(*) from retoma.deliveries d where d.endpoint = e.id and d.state = 'dead') as dead
  from retoma.endpoints e
  left join retoma.tenants t on t.id = e.tenant
 where (:tenants::int[] is null or e.tenant = any (:tenants))
   and (:id::int is null or e.id = :id)
   and (not :subscribed or e.events is not null)
   and (:before::int is null or e.id < :before)
 order by e.id desc
 limit :limit;

-- name: enable_endpoint
update retoma.endpoints
   set disabled_at = null, disabled_because = null, failures = 0, failing_since = null, open_until = null
 where id = :id and (:tenant::int is null or tenant = :tenant)
returning id;

-- name: rotate_secret
-- Set a new secret for the endpoint's tenant and host. The previous one signs too for a while. Repeating the call changes
-- nothing.
update retoma.webhook_secrets s
   set previous_secret = case when s.secret = :secret then s.previous_secret else s.secret end,
       previous_secret_until = retoma.now() + :overlap,
       secret = :secret
  from retoma.endpoints e
 where e.id = :id and (:tenant::int is null or e.tenant = :tenant) and s.tenant = e.tenant and s.host = e.host
returning s.host;

-- name: count_subscriptions
select count(*)::int as subscriptions
  from retoma.endpoints
 where tenant = :tenant and events is not null;

-- name: subscribe
-- Subscribe a URL to these events of all runs of a tenant, replacing its earlier subscription. The secret of its host stays.
with kept as (
  insert into retoma.webhook_secrets as s (tenant, host, secret)
  values (:tenant, :host, :secret)
      on conflict (tenant, host) do update
     set secret = s.secret
  returning s.secret
), subscribed as (
  insert into retoma.endpoints as e (tenant, host, url, created_at, events)
  values (:tenant, :host, :url, retoma.now(), :events)
      on conflict (tenant, url) do update
     set events = excluded.events, disabled_at = null, disabled_because = null, failures = 0, failing_since = null,
         open_until = null
  returning e.id
)
select subscribed.id, kept.secret
  from subscribed, kept;

-- name: unsubscribe
update retoma.endpoints
   set events = null
 where id = :id and (:tenant::int is null or tenant = :tenant) and events is not null
returning id;

-- name: get_or_create_signing_key
-- Return the secret for this purpose. The first caller creates it.
with created as (
  insert into retoma.signing_keys (purpose, secret)
  values (:purpose, :secret)
      on conflict do nothing
  returning secret
)
select secret from created
union all
select secret from retoma.signing_keys where purpose = :purpose
limit 1;
