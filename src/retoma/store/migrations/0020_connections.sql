-- Adds connections: the credentials of outside services, by tenant. Their secrets are encrypted with a key that is not in the
-- database. Without that key, enter them again.

create table retoma.connections (
  tenant int references retoma.tenants,    -- null: all tenants
  service text collate "C" not null,
  account text collate "C" not null default '',  -- of a service with several, such as a channel or a site; otherwise empty
  settings jsonb not null,                 -- the fields that are not secret, by name
  secret_fields text[] not null,           -- the names of the secret fields that are set
  ciphertext bytea not null,               -- the secret fields by name, as JSON; bound to the columns above except secret_fields
  key_id text not null,                    -- which key encrypted it
  version bigint not null,                 -- of the values: another one makes workers build what uses them again
  created_at timestamptz not null,
  created_by text not null,
  updated_at timestamptz not null,
  updated_by text not null,
  tested_at timestamptz,                   -- this version
  tested_by text,
  test_error text,                         -- null: the test succeeded
  constraint one_connection_per_tenant_service_and_account unique nulls not distinct (tenant, service, account),
  constraint settings_are_an_object check (jsonb_typeof(settings) = 'object'),
  constraint a_test_has_a_time_and_an_author check
    ((tested_at is null) = (tested_by is null) and (test_error is null or tested_at is not null))
);

-- Versions of all connections: a connection that is deleted and entered again does not have a version that was used before.
create sequence retoma.connection_versions;

-- A key may manage connections.
alter table retoma.api_keys drop constraint scopes_are_known;
alter table retoma.api_keys add constraint scopes_are_known check (scopes <@ array[
  'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'reviews:write',
  'schedules:write', 'budgets:write', 'connections:write', 'people:write', 'audit:read', 'admin']);
