-- name: free_key_slots
-- Free the slots of expired keys of this name.
update retoma.api_keys
   set revoked_at = retoma.now()
 where tenant is not distinct from :tenant::int and name = :name and revoked_at is null and expires_at <= retoma.now();

-- name: add_key
-- Add a key in a free slot of its name. Adds nothing if no slot is free, or if this key exists already.
insert into retoma.api_keys (name, tenant, scopes, digest, hint, key_slot, created_at, expires_at)
select :name, :tenant::int, :scopes::text[], :digest, :hint, key_slot, retoma.now(), :expires_at
  from generate_series(1, 2) as key_slot
 where not exists (select
                     from retoma.api_keys k
                    where k.tenant is not distinct from :tenant::int and k.name = :name and k.key_slot = key_slot.key_slot
                      and k.revoked_at is null)
 order by key_slot
 limit 1
    on conflict do nothing
returning id;

-- name: use_key
-- Return the key if it is live, and record its use at most once a minute.
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

-- name: list_live_keys
-- Return those of these digests whose keys are live.
select digest
  from retoma.api_keys
 where digest = any(:digests::bytea[]) and revoked_at is null and (expires_at is null or expires_at > retoma.now());

-- name: list_keys
-- Newest first.
select k.id, k.name, t.name as tenant, k.scopes, k.hint, k.created_at, k.expires_at, k.used_at, k.revoked_at
  from retoma.api_keys k
  left join retoma.tenants t on t.id = k.tenant
 where (:id::int is null or k.id = :id)
   and (:digest::bytea is null or k.digest = :digest)
   and (:tenants::int[] is null or k.tenant = any (:tenants))
   and (:include_ended or (k.revoked_at is null and (k.expires_at is null or k.expires_at > retoma.now())))
 order by k.id desc;

-- name: revoke_key
-- Revoke a key. A second revocation keeps the first time.
update retoma.api_keys
   set revoked_at = retoma.now()
 where id = :id and revoked_at is null
returning id;

-- name: expire_key
-- Shorten the validity of a key to this overlap, unless it expires sooner.
update retoma.api_keys
   set expires_at = least(expires_at, retoma.now() + :overlap::interval)
 where id = :id and revoked_at is null;
