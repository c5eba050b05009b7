-- The items of a list are claimed in rounds, so a long list does not hold up later runs: first 4 items of each list, then 8, then
-- 16, and so on. A rank is the round, times 2^53, plus the time of the run in microseconds minus its head start. All jobs that are not
-- items belong to round 0, and so does a list of at most 10 items that needs a pool: slots are few, and its run should finish with them.
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

-- The round of an item, by its index in the list, which starts at 0. `p_pooled_items` is the length of a list that needs a pool, null for
-- any other list. A result is too small for a list that needs more rounds.
create or replace function retoma.round_of_item(p_index bigint, p_pooled_items int) returns int immutable language sql as $$
  -- The half keeps powers of two away from the limits, where a logarithm may be a little too low.
  select case when p_pooled_items <= 10 then 0
         else least(retoma.last_round(), floor(ln((p_index / 4)::float8 + 1.5::float8) / ln(2::float8))::int) end;
$$;

create or replace function retoma.last_round() returns int immutable language sql as $$
  select 15;
$$;

-- How many of these jobs, which one call claims for one tenant, are for runs that wait in later rounds: a quarter, rounded up in
-- some calls and down in others. Multiples of the golden ratio are spread evenly, even if only every second or tenth call claims.
create or replace function retoma.jobs_for_waiting_runs(p_jobs int, p_call_number bigint) returns int immutable language sql as $$
  select ((p_jobs * 250000::bigint + p_call_number * 618033 % 1000000) / 1000000)::int;
$$;

-- For which waiting run these jobs are: half of the calls for the oldest, a quarter for the second, an eighth for the third, a
-- sixteenth for the fourth, and the other calls in equal parts for the next 32.
create or replace function retoma.waiting_run_of_call(p_call_number bigint) returns int immutable language sql as $$
  select case when hashint8(p_call_number) & 15 > 0 then 5 - length(ltrim((hashint8(p_call_number) & 15)::bit(4)::text, '0'))
         else 5 + (hashint8(p_call_number) >> 4 & 31) end;
$$;

-- The rank from which on jobs for a waiting run of a tenant are claimed, in a queue or for a pool. A run waits if it has ready jobs,
-- but none in the first round that has any. If there is no such run in the place of this call, the oldest; null if none waits.
create or replace function retoma.rank_of_waiting_run(
  p_pool text, p_tenant int, p_queues text[], p_versions int[], p_suspect boolean, p_call_number bigint, p_from bigint, p_before bigint)
returns bigint stable language plpgsql as $$
declare
  v_first bigint := retoma.first_ready_rank(p_pool, p_tenant, p_queues, p_versions, p_suspect, p_from, p_before);
  v_age bigint := -1;
  v_rank bigint;
  v_oldest bigint;
begin
  v_first := v_first - retoma.age_in_rank(v_first);
  for v_place in 1 .. case when v_first is null then 0 else retoma.waiting_run_of_call(p_call_number) end loop
    select o.rank into v_rank
      from retoma.oldest_of_rounds(
             p_pool, p_tenant, p_queues, p_versions, p_suspect, v_age, retoma.next_round(v_first), p_before) o
     order by retoma.age_in_rank(o.rank), o.rank limit 1;
    exit when v_rank is null;
    v_age := retoma.age_in_rank(v_rank);
    if retoma.first_ready_rank(p_pool, p_tenant, p_queues, p_versions, p_suspect, v_first + v_age, v_first + v_age + 1) is not null then
      v_rank := null;
    end if;
    v_oldest := coalesce(v_oldest, v_rank);
  end loop;
  return coalesce(v_rank, v_oldest);
end $$;

-- The rank of the oldest ready job that is younger than `p_age`, in each round from `p_from` on. At most two index probes per round.
create or replace function retoma.oldest_of_rounds(
  p_pool text, p_tenant int, p_queues text[], p_versions int[], p_suspect boolean, p_age bigint, p_from bigint, p_before bigint)
returns table (rank bigint) stable language plpgsql as $$
declare
  v_from bigint := p_from + p_age + 1;
begin
  loop
    rank := retoma.first_ready_rank(p_pool, p_tenant, p_queues, p_versions, p_suspect, v_from, p_before);
    exit when rank is null;
    if retoma.age_in_rank(rank) > p_age then
      return next;
      v_from := retoma.next_round(rank) + p_age + 1;
    else
      v_from := rank - retoma.age_in_rank(rank) + p_age + 1;
    end if;
  end loop;
end $$;

-- The lowest of these ranks that a ready job of a tenant has, in a queue or for a pool.
create or replace function retoma.first_ready_rank(
  p_pool text, p_tenant int, p_queues text[], p_versions int[], p_suspect boolean, p_from bigint, p_before bigint)
returns bigint stable language plpgsql as $$
begin
  if p_pool is null then
    return (select j.rank from retoma.jobs j
             where j.tenant = p_tenant and retoma.is_claimable_unpooled(j, p_queues[1], p_versions, p_from, p_before)
             order by j.rank limit 1);
  end if;
  return (select j.rank from retoma.jobs j
           where j.tenant = p_tenant
             and retoma.is_claimable_from_pool(j, p_pool, p_queues, p_versions, p_suspect, p_from, p_before)
           order by j.rank limit 1);
end $$;

-- The ranges of ranks from which to claim these jobs: those for a waiting run from `p_waiting` on, if a run waits, and the others
-- from the first round on.
create or replace function retoma.ranges_to_claim(p_jobs int, p_for_waiting int, p_waiting bigint, p_from bigint, p_before bigint)
returns table (first bigint, before bigint, jobs int) immutable language sql as $$
  select p_from, coalesce(p_waiting, p_before), case when p_waiting is null then p_jobs else p_jobs - p_for_waiting end
  union all
  select p_waiting, p_before, p_for_waiting where p_waiting is not null;
$$;
