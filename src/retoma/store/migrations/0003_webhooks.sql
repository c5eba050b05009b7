-- Adds webhooks: who is told of a run, what is owed to them, and how each attempt went. Touches no other table.

create type retoma.delivery_state as enum ('due', 'sending', 'delivered', 'dead');

-- What signs the webhooks of a tenant to a host. The former one signs too until its time is over.
create table retoma.webhook_secrets (
  tenant int not null,
  host text collate "C" not null,
  secret text not null,
  former text,
  former_until timestamptz,
  primary key (tenant, host)
);

-- A URL of a tenant. `failures` are in a row, since `failing_since`; a success ends both.
create table retoma.endpoints (
  id int generated always as identity primary key,
  tenant int not null,
  host text collate "C" not null,          -- scheme, host and port, without what may be secret
  url text collate "C" not null,
  created_at timestamptz not null,
  failures int not null default 0,
  failing_since timestamptz,
  open_until timestamptz,                  -- until then nothing is sent
  disabled_at timestamptz,
  disabled_because text,
  unique (tenant, url)
) with (fillfactor = 70);

-- Which events of a run are owed to whom.
create table retoma.hooks (
  run uuid not null,
  endpoint int not null,
  events text[] not null,
  schedule text not null,
  retries int,
  primary key (run, endpoint),
  constraint schedule_is_known check (schedule in ('standard', 'short'))
);

-- One event owed to one endpoint. Its id is the `webhook-id`.
create table retoma.deliveries (
  id uuid primary key default gen_random_uuid(),
  number bigint generated always as identity unique,
  run uuid not null,
  endpoint int not null,
  seq int not null,                        -- of what is owed to this endpoint for this run
  tenant int not null,
  pipeline text collate "C" not null,
  host text collate "C" not null,
  event text not null,
  schedule text not null,
  retries int,
  state retoma.delivery_state not null default 'due',
  attempt int not null default 0,          -- counted when it is taken up; who holds an older one may not write
  tries int not null default 0,            -- of the schedule, which a redrive begins anew
  next_at timestamptz not null,            -- due: when to send; sending: when another may take it up
  body text,                               -- set before the first attempt, and then never changed
  created_at timestamptz not null,
  ended_at timestamptz,
  constraint one_place_in_the_order unique (run, endpoint, seq),
  constraint over_means_ended check ((state in ('delivered', 'dead')) = (ended_at is not null))
) with (fillfactor = 70);

create index deliveries_open_by_host on retoma.deliveries (host, next_at) where ended_at is null;
create index deliveries_of_endpoint on retoma.deliveries (endpoint, number);

create table retoma.delivery_attempts (
  delivery uuid not null,
  attempt int not null,
  at timestamptz not null,
  ms int,                                  -- null: how it ended is not known, because its sender died
  status int,
  error text,
  answer text,
  primary key (delivery, attempt)
);

insert into retoma.moves (of, before, after)
select 'delivery', before, after
  from (values
    ('due', '{sending, dead}'::text[]),
    ('sending', '{due, delivered, dead}'),
    ('dead', '{due}')
  ) as moves (before, afters), unnest(afters) as after;

create trigger only_permitted_moves
  after update of state on retoma.deliveries for each row
  when (old.state <> new.state and not case old.state
    when 'due' then new.state in ('sending', 'dead')
    when 'sending' then new.state in ('due', 'delivered', 'dead')
    when 'dead' then new.state = 'due'
    else false end)
  execute function retoma.refuse_move('delivery');

-- It has one argument more now.
drop function if exists retoma.start_runs(uuid[], int[], int[], json[], text[], bytea[], timestamptz[], bigint[]);
