-- Records which pipelines each worker serves, and which servers are running with which hosts allowed. Adds a column that stays empty
-- for existing rows and one empty table, and drops the table of hosts: quick.
alter table retoma.workers add column pipelines text[];  -- null for a worker of an earlier release: it may serve any

create table retoma.servers (
  id uuid primary key,
  beat_at timestamptz not null,
  allow_hosts text[] not null,          -- names, addresses or networks, as RETOMA_ALLOW_HOSTS has them
  public_url text                       -- null if RETOMA_PUBLIC_URL is not set
);

drop table retoma.allowed_hosts;
