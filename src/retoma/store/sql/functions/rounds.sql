-- The items of a list are claimed in rounds, so a long list does not hold up later runs: first 4 items of each list, then 8, then
-- 16, and so on; 10, 20 and 40 of a list that needs a pool. A rank is the round, times 2^53, plus the time of the run in microseconds
-- minus its head start. All jobs that are not items belong to round 0.
create or replace function retoma.start_of_round(p_round int) returns bigint immutable language sql as $$
  select p_round::bigint << 53;
$$;

create or replace function retoma.next_round(p_rank bigint) returns bigint immutable language sql as $$
  select ((p_rank >> 53) + 1) << 53;
$$;

-- A rank without its round.
create or replace function retoma.age_in_rank(p_rank bigint) returns bigint immutable language sql as $$
  select p_rank & ((1::bigint << 53) - 1);
$$;

-- The round of an item, by its index in the list, which starts at 0. A result is too small for a list that needs more rounds.
create or replace function retoma.round_of_item(p_index bigint, p_is_pooled boolean) returns int immutable language sql as $$
  -- The half keeps powers of two away from the limits, where a logarithm may be a little too low.
  select least(retoma.last_round(), floor(ln((p_index / case when p_is_pooled then 10 else 4 end)::float8 + 1.5::float8) / ln(2::float8))::int);
$$;

create or replace function retoma.last_round() returns int immutable language sql as $$
  select 15;
$$;

-- How many of these jobs, which one call claims for one tenant, are for the tenant's oldest run: a quarter, rounded up in some
-- calls and down in others. Multiples of the golden ratio are spread evenly, even if only every second or tenth call claims.
create or replace function retoma.jobs_for_oldest_run(p_jobs int, p_call_number bigint) returns int immutable language sql as $$
  select ((p_jobs * 250000::bigint + p_call_number * 618033 % 1000000) / 1000000)::int;
$$;

-- The rank from which on jobs for the oldest run are claimed: the first of the round that has the oldest ready job of a tenant in
-- a queue. No row if that is the first round with ready jobs.
create or replace function retoma.oldest_rank_in_queue(p_queue text, p_tenant int, p_versions int[], p_from bigint, p_before bigint)
returns setof bigint stable language sql as $$
  with recursive heads (rank, following) as (
    select null::bigint, p_from
    union all
    select j.rank, retoma.next_round(j.rank)
      from heads h,
           lateral (select j.rank from retoma.jobs j
                     where j.tenant = p_tenant and retoma.is_claimable_unpooled(j, p_queue, p_versions, h.following, p_before)
                     order by j.rank limit 1) j
  )
  select o.rank
    from (select h.rank from heads h where h.rank is not null order by retoma.age_in_rank(h.rank), h.rank limit 1) o
   where o.rank > (select min(h.rank) from heads h);
$$;

-- The same for jobs that wait for a pool. Of runs with the same age, the one with the lower id is the older one.
create or replace function retoma.oldest_rank_in_pool(
  p_pool text, p_tenant int, p_queues text[], p_versions int[], p_suspect boolean, p_from bigint, p_before bigint)
returns setof bigint stable language sql as $$
  with recursive heads (rank, run, following) as (
    select null::bigint, null::uuid, p_from
    union all
    select j.rank, j.run, retoma.next_round(j.rank)
      from heads h,
           lateral (select j.rank, j.run from retoma.jobs j
                     where j.tenant = p_tenant
                       and retoma.is_claimable_from_pool(j, p_pool, p_queues, p_versions, p_suspect, h.following, p_before)
                     order by j.rank, j.run limit 1) j
  )
  select o.rank
    from (select h.rank from heads h where h.rank is not null order by retoma.age_in_rank(h.rank), h.run, h.rank limit 1) o
   where o.rank > (select min(h.rank) from heads h);
$$;

-- The ranges of ranks from which to claim these jobs: those for the oldest run from `p_oldest` on, if it has a round of its own,
-- and the others from the first round on.
create or replace function retoma.ranges_to_claim(p_jobs int, p_for_oldest int, p_oldest bigint, p_from bigint, p_before bigint)
returns table (first bigint, before bigint, jobs int) immutable language sql as $$
  select p_from, coalesce(p_oldest, p_before), case when p_oldest is null then p_jobs else p_jobs - p_for_oldest end
  union all
  select p_oldest, p_before, p_for_oldest where p_oldest is not null;
$$;
