-- Adds three columns to the rows of workers' connections, which are few. Nothing waits for it.

-- `part` changes with every thousandth call: while a transaction stays open, all versions of a row under one key are read again.
-- `claims_from` is the rank below which nothing was found, and `look_back_at` when to look there again; null: in every call.
alter table retoma.lanes
  add part bigint not null default 0,
  add claims_from bigint,
  add look_back_at timestamptz;
alter table retoma.lanes drop constraint lanes_pkey;
update retoma.lanes set part = call / 1000;
alter table retoma.lanes add primary key (worker, lane, part);

-- They are given ranks now.
drop function if exists retoma.tenants_in_turn(text, int[], int, int);
drop function if exists retoma.claim(int, timestamptz, text[], int[], int, int, boolean);
drop function if exists retoma.take(int, timestamptz, text[], int[], int, int, boolean, boolean);
drop function if exists retoma.tenants_for_pool(text, text[], int[], boolean, int, int);
drop function if exists retoma.claim_pooled(int, timestamptz, text[], int[], int, boolean);
drop function if exists retoma.share_out(timestamptz, retoma.pools, text[], int[], int, boolean);
