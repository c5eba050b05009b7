-- name: declare_provider_pools
-- Create the pools of providers in chains, whose breakers they hold. A pool that an application declares stays as it is.
insert into retoma.pools (name, declared, capacity, tokens, tokens_at)
select name, json_build_object('capacity', :capacity::int, 'burst', 1), :capacity, 1, retoma.now()
  from unnest(:names::text[]) as name
    on conflict (name) do nothing;

-- name: list_breakers
-- The breakers of these providers: `open_for` and `paused_for` are how long no job may use the provider.
select p.name, p.failures > 0 as is_troubled, retoma.is_tripped(p) as is_tripped, p.probed_at is not null as is_probed,
       greatest(coalesce(p.open_until - retoma.now(), interval '0'), interval '0') as open_for,
       greatest(coalesce(p.paused_until - retoma.now(), interval '0'), interval '0') as paused_for
  from retoma.pools p
 where p.name = any (:names::text[]);

-- name: claim_probe
select retoma.claim_probe(:name) as probed_at;

-- name: record_reports
select retoma.record_provider_reports(:name::text[], :kind::text[], :delay::interval[], :probed_at::timestamptz[]);

-- name: list_provider_effects
-- The effects by which a job is bound to a provider of its chain: external work that it submitted, and calls with an unknown outcome
-- that can be looked for. External work that has failed is forgotten when the job is retried.
select e.request ->> 'provider' as provider, e.find, e.done_at is null as is_unknown,
       coalesce(e.request is not null and o.state in ('failed', 'cancelled', 'lost'), false) as has_failed
  from retoma.effects e
  left join retoma.external_work o on o.run = e.run and o.step = e.step and o.item = e.item and o.revision = e.revision
 where e.run = :run and e.step = :step and e.item = :item and e.revision = :revision
   and (e.done_at is not null and e.request is not null or e.done_at is null and e.find is not null)
 order by e.begun_at;
