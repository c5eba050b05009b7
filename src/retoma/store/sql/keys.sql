-- name: free_places
-- Keys of this name that have expired no longer hold one of its two places.
update retoma.api_keys
   set revoked_at = retoma.now()
 where tenant is not distinct from :tenant::int and name = :name and revoked_at is null and expires_at <= retoma.now();

-- name: add_key
-- A new key in a free place of its name. Adds nothing if there is none, or if this very key is there already.
insert into retoma.api_keys (name, tenant, scopes, digest, hint, place, created_at, expires_at)
select :name, :tenant::int, :scopes::text[], :digest, :hint, place, retoma.now(), :expires_at
  from generate_series(1, 2) as place
 where not exists (select
                     from retoma.api_keys k
                    where k.tenant is not distinct from :tenant::int and k.name = :name and k.place = place.place
                      and k.revoked_at is null)
 order by place
 limit 1
    on conflict do nothing;

-- name: find_key
select k.id, k.name, t.name as tenant, k.scopes, k.hint, k.created_at, k.expires_at, k.used_at, k.revoked_at
  from retoma.api_keys k
  left join retoma.tenants t on t.id = k.tenant
 where k.digest = :digest;

-- name: use_key
-- The key if it is live now. That it was used is noted at most once a minute.
with found as (
  select id, name, tenant, scopes, hint, created_at, expires_at, used_at, revoked_at
    from retoma.api_keys
   where digest = :digest and revoked_at is null and (expires_at is null or expires_at > retoma.now())
), noted as (
  update retoma.api_keys k
     set used_at = retoma.now()
    from found f
   where k.id = f.id and (f.used_at is null or f.used_at < retoma.now() - interval '1 minute')
)
select f.id, f.name, t.name as tenant, f.scopes, f.hint, f.created_at, f.expires_at, f.used_at, f.revoked_at
  from found f
  left join retoma.tenants t on t.id = f.tenant;

-- name: live_keys
-- Those of these digests whose keys are live.
select digest
  from retoma.api_keys
 where digest = any(:digests::bytea[]) and revoked_at is null and (expires_at is null or expires_at > retoma.now());

-- name: list_keys
-- Newest first.
select k.id, k.name, t.name as tenant, k.scopes, k.hint, k.created_at, k.expires_at, k.used_at, k.revoked_at
  from retoma.api_keys k
  left join retoma.tenants t on t.id = k.tenant
 where (:tenant::text is null or t.name = :tenant)
   and (:with_ended or (k.revoked_at is null and (k.expires_at is null or k.expires_at > retoma.now())))
 order by k.id desc;

-- name: show_key
select k.id, k.name, t.name as tenant, k.scopes, k.hint, k.created_at, k.expires_at, k.used_at, k.revoked_at
  from retoma.api_keys k
  left join retoma.tenants t on t.id = k.tenant
 where k.id = :id;

-- name: revoke_key
-- From now on nobody may use it. Revoked again, it keeps its first time.
update retoma.api_keys
   set revoked_at = coalesce(revoked_at, retoma.now())
 where id = :id;

-- name: let_key_expire
-- It stays valid for so long, or for shorter if it would end sooner.
update retoma.api_keys
   set expires_at = least(expires_at, retoma.now() + :overlap::interval)
 where id = :id and revoked_at is null;
