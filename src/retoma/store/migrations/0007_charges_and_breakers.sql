-- Adds what attempts cost, the prices it is reckoned by, and a breaker for each pool. Rewrites no row.

-- What a provider takes, in millionths of a US dollar. A change is a new version; what was charged keeps its own.
create table retoma.prices (
  provider text collate "C" not null,
  what text collate "C" not null,          -- a model, a voice, a kind of machine
  version int not null,
  since timestamptz not null,
  tokens_in bigint not null default 0,     -- for a million of them
  tokens_out bigint not null default 0,
  unit bigint not null default 0,          -- for one
  primary key (provider, what, version),
  constraint prices_are_not_negative check (tokens_in >= 0 and tokens_out >= 0 and unit >= 0)
);

-- What one attempt has used, whatever became of the attempt.
create table retoma.charges (
  id uuid primary key,
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  attempt int not null,
  tenant int not null,
  at timestamptz not null,
  provider text collate "C" not null,
  what text collate "C" not null,
  tokens_in bigint not null default 0,
  tokens_out bigint not null default 0,
  units double precision not null default 0,
  micros bigint,                           -- null: nobody knows what it costs
  price int,                               -- the version of the price; null if the provider itself told the sum
  constraint amounts_are_not_negative check (tokens_in >= 0 and tokens_out >= 0 and units >= 0)
);

create index charges_of_run on retoma.charges (run, id);
create index charges_of_tenant on retoma.charges (tenant, at);

-- The breaker: `failures` of its provider in a row. From the fifth on nothing begins until `open_until`, and then one job
-- at a time, until one succeeds.
alter table retoma.pools
  add failures int not null default 0,
  add open_until timestamptz,
  add probed_at timestamptz,               -- when the job began that is to tell how the provider is
  add trouble text;
