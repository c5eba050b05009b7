-- name: list_connections
-- Connections of these tenants, or of all; with `shared`, also those for all tenants.
select t.name as tenant, c.service, c.account, c.settings::text as settings, c.secret_fields, c.key_id, c.version,
       c.created_at, c.created_by, c.updated_at, c.updated_by, c.tested_at, c.tested_by, c.test_error
  from retoma.connections c
  left join retoma.tenants t on t.id = c.tenant
 where case when c.tenant is null then :shared::boolean else :tenants::int[] is null or c.tenant = any (:tenants) end
 order by t.name nulls first, c.service, c.account;

-- name: list_connection_versions
-- Which connections a tenant can use: its own, and those for all tenants.
select c.tenant is not null as is_own, c.service, c.account, c.version
  from retoma.connections c
 where c.tenant = :tenant or c.tenant is null
 order by 1, 2, 3;

-- name: list_encrypted_connections
select c.tenant, c.service, c.account, c.settings::text as settings, c.ciphertext, c.key_id, c.version
  from retoma.connections c
 where c.tenant = :tenant or c.tenant is null
 order by c.tenant nulls first, c.service, c.account;

-- name: find_encrypted_connection
select c.tenant, c.service, c.account, c.settings::text as settings, c.ciphertext, c.key_id, c.version
  from retoma.connections c
 where c.tenant is not distinct from :tenant::int and c.service = :service and c.account = :account;

-- name: add_connection
insert into retoma.connections
  (tenant, service, account, settings, secret_fields, ciphertext, key_id, version, created_at, created_by, updated_at, updated_by)
values (:tenant, :service, :account, :settings::jsonb, :secret_fields, :ciphertext, :key_id,
        nextval('retoma.connection_versions'), retoma.now(), :by, retoma.now(), :by)
    on conflict (tenant, service, account) do nothing
returning version;

-- name: change_connection
-- Change the version that the caller has read.
update retoma.connections
   set settings = :settings::jsonb, secret_fields = :secret_fields, ciphertext = :ciphertext, key_id = :key_id,
       version = nextval('retoma.connection_versions'), updated_at = retoma.now(), updated_by = :by,
       tested_at = null, tested_by = null, test_error = null
 where tenant is not distinct from :tenant::int and service = :service and account = :account and version = :version
returning version;

-- name: delete_connection
delete from retoma.connections
 where tenant is not distinct from :tenant::int and service = :service and account = :account
returning version;

-- name: record_connection_test
-- Record the result of a test, unless the connection has changed since.
update retoma.connections
   set tested_at = retoma.now(), tested_by = :by, test_error = :error
 where tenant is not distinct from :tenant::int and service = :service and account = :account and version = :version
returning version;

-- name: list_connections_with_other_keys
select c.tenant, c.service, c.account, c.settings::text as settings, c.ciphertext, c.key_id, c.version
  from retoma.connections c
 where c.key_id <> :key_id
 order by c.tenant nulls first, c.service, c.account
 limit :limit;

-- name: replace_ciphertexts
-- Store the same values, encrypted with another key. Those that have changed since they were read stay.
with changed as (
  update retoma.connections c
     set ciphertext = n.ciphertext, key_id = :key_id
    from unnest(:tenant::int[], :service::text[], :account::text[], :version::bigint[], :ciphertext::bytea[])
      as n (tenant, service, account, version, ciphertext)
   where c.tenant is not distinct from n.tenant and c.service = n.service and c.account = n.account and c.version = n.version
  returning 1
)
select nullif(count(*), 0)::int as replaced from changed;
