-- Adds API keys. Only their digests are kept; nothing that exists is touched.

create table retoma.api_keys (
  id int generated always as identity primary key,
  name text not null,
  tenant int references retoma.tenants,    -- null: all tenants
  scopes text[] not null,
  digest bytea not null unique,
  hint text not null,                      -- how the key begins, so that people can tell keys apart
  place smallint not null,                 -- which of the two live keys of its name it is
  created_at timestamptz not null,
  expires_at timestamptz,
  used_at timestamptz,                     -- written at most once a minute
  revoked_at timestamptz,
  constraint a_name_has_two_places check (place in (1, 2)),
  constraint scopes_are_known check (scopes <@ array[
    'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'admin']),
  constraint what_reaches_all_needs_all_tenants check
    (tenant is null or not scopes && array['pools:write', 'metrics:read', 'admin'])
);

create unique index two_live_keys_per_name on retoma.api_keys (tenant, name, place) nulls not distinct
  where revoked_at is null;
