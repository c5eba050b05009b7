-- Adds when backups were taken and when the database was restored from one. Adds two empty tables, and locks nothing that is in use.

-- The backups that were completed, for `retoma doctor`. A backup does not contain itself.
create table retoma.backups (
  id uuid primary key,
  taken_at timestamptz not null,           -- of the snapshot: what was committed later is not in it
  completed_at timestamptz not null,
  bytes bigint not null,
  files int not null
);

create index backups_by_taken_at on retoma.backups (taken_at);

-- When this database was restored from a backup. What happened between the two times may be known to providers and receivers, and
-- not to this database.
create table retoma.restores (
  epoch int generated always as identity primary key,
  backup uuid not null,
  taken_at timestamptz not null,
  restored_at timestamptz not null,
  outbox text not null,                    -- what became of the webhooks and notifications that were due
  constraint outbox_is_known check (outbox in ('hold', 'send', 'drop'))
);
