-- Rows that no run owns, and that nothing needs any more after a time: the parts of `delete_old_rows`. Each returns how many rows it
-- deleted, at most about `p_limit`.

-- Remove the events of other systems that arrived before `p_before`, with those before them in their stream. The stream remembers up
-- to which number, and is itself forgotten once no event is left and none was removed since `p_before`.
create or replace function retoma.remove_inbound_events(p_now timestamptz, p_before timestamptz, p_limit int) returns int language plpgsql as $$
declare
  v_count int;
begin
  -- The row of the stream is locked first, as by `record_events`, so an event that arrives again meanwhile is still known.
  insert into retoma.inbound_streams as s (app, stream, tenant, removed_through, removed_at)
  select e.app, e.stream, min(e.tenant), max(e.sequence), p_now
    from (select i.app, i.stream, i.tenant, i.sequence from retoma.inbound_events i
           where i.received_at < p_before order by i.received_at limit p_limit) e
   group by e.app, e.stream
   order by e.app, e.stream
      on conflict (app, stream) do update
     set removed_through = greatest(s.removed_through, excluded.removed_through), removed_at = excluded.removed_at;
  delete from retoma.inbound_events e
   using retoma.inbound_streams s
   where s.removed_at = p_now and e.app = s.app and e.stream = s.stream and e.sequence <= s.removed_through;
  get diagnostics v_count = row_count;
  delete from retoma.inbound_streams where ctid = any (array(
    select s.ctid from retoma.inbound_streams s
     where s.removed_at < p_before
       and not exists (select from retoma.inbound_events e where e.app = s.app and e.stream = s.stream)
     order by s.removed_at limit p_limit for update skip locked));
  return v_count;
end $$;

-- Roll up charges that were reported after their run was removed. Checks the next `p_limit` runs with charges, in the order of their ids.
create or replace function retoma.remove_orphaned_charges(p_limit int) returns int language plpgsql as $$
declare
  v_runs uuid[];
  v_gone uuid[];
begin
  -- From run to run by the index, whatever number of charges each has.
  with recursive charged as (
    (select c.run, 1 as number
       from retoma.retention_progress p, retoma.charges c
      where p.charges_checked_to is null or c.run > p.charges_checked_to order by c.run limit 1)
    union all
    select (select c.run from retoma.charges c where c.run > h.run order by c.run limit 1), h.number + 1
      from charged h
     where h.run is not null and h.number < p_limit
  )
  select array(select h.run from charged h where h.run is not null order by h.run) into v_runs;
  update retoma.retention_progress set charges_checked_to = case when cardinality(v_runs) = p_limit then v_runs[p_limit] end;
  v_gone := array(select g from unnest(v_runs) g where not exists (select from retoma.runs r where r.id = g));
  if v_gone <> '{}' then
    perform retoma.roll_up_charges(v_gone);
  end if;
  return cardinality(v_gone);
end $$;

-- Merge the roll-ups of hours before `p_before`, the beginning of a day of UTC, into days.
create or replace function retoma.compact_charge_rollups(p_before timestamptz, p_limit int) returns int language plpgsql as $$
declare
  v_count int;
begin
  if not exists (select from retoma.charge_rollups r where r.hour < p_before and extract(hour from r.hour at time zone 'UTC') <> 0) then
    return 0;
  end if;
  -- A removal that adds to them locks hours in another order: one of the two would wait for the other, and it for us.
  begin
    lock table retoma.charge_rollups in share row exclusive mode nowait;
  exception when lock_not_available then
    return 0;
  end;
  with hours as (
    delete from retoma.charge_rollups where ctid = any (array(
      select r.ctid from retoma.charge_rollups r
       where r.hour < p_before and extract(hour from r.hour at time zone 'UTC') <> 0
       order by r.hour limit p_limit))
    returning *
  ), days as (
    insert into retoma.charge_rollups as t
      (hour, tenant, pipeline, step, provider, resource, charges, tokens_in, tokens_out, units, micros, unpriced)
    select date_trunc('day', h.hour, 'UTC'), h.tenant, h.pipeline, h.step, h.provider, h.resource, sum(h.charges), sum(h.tokens_in),
           sum(h.tokens_out), sum(h.units), sum(h.micros), sum(h.unpriced)
      from hours h
     group by 1, 2, 3, 4, 5, 6
        on conflict (tenant, hour, pipeline, step, provider, resource) do update
       set charges = t.charges + excluded.charges, tokens_in = t.tokens_in + excluded.tokens_in,
           tokens_out = t.tokens_out + excluded.tokens_out, units = t.units + excluded.units, micros = t.micros + excluded.micros,
           unpriced = t.unpriced + excluded.unpriced
  )
  select count(*) into v_count from hours;
  return v_count;
end $$;

-- Delete sums and warnings of budgets whose periods have passed, API keys that ended a year ago, and all but the last 1,000 records of
-- backups and of restores.
create or replace function retoma.delete_old_records(p_now timestamptz, p_limit int) returns int language plpgsql as $$
declare
  v_count int;
  v_total int := 0;
begin
  delete from retoma.charge_sums where ctid = any (array(
    select s.ctid from retoma.charge_sums s where s.quarter < p_now - interval '400 days' order by s.quarter limit p_limit));
  get diagnostics v_count = row_count;
  v_total := v_total + v_count;
  delete from retoma.budget_warnings where ctid = any (array(
    select w.ctid from retoma.budget_warnings w
     where w.warned_at < p_now - interval '62 days' and (w.run is null or not exists (select from retoma.runs r where r.id = w.run))
     limit p_limit));
  get diagnostics v_count = row_count;
  v_total := v_total + v_count;
  delete from retoma.api_keys where id = any (array(
    select k.id from retoma.api_keys k where least(k.revoked_at, k.expires_at) < p_now - interval '1 year' limit p_limit));
  delete from retoma.backups where id = any (array(
    select b.id from retoma.backups b order by b.taken_at desc offset 1000 limit p_limit));
  delete from retoma.restores where epoch = any (array(
    select s.epoch from retoma.restores s order by s.epoch desc offset 1000 limit p_limit));
  return v_total;
end $$;
