-- Remove ended runs with everything that belongs to them, and return those that were removed. What they cost and how people decided is
-- added to roll-ups; the keys that started them stay, and answer that their run was removed. A run that somebody is changing is left
-- out, and so is one that something still needs (`can_remove`).
create or replace function retoma.remove_runs(p_runs uuid[], p_cause text) returns uuid[] language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_runs uuid[];
begin
  -- First, because the ends that this transaction could have written are not counted by it.
  perform retoma.count_recent_ends(v_now, p_runs);
  -- Nobody waits for this: what others hold is skipped. The next statement sees what they have changed before.
  v_runs := array(select l.id
                    from (select r.id from retoma.runs r
                           where r.id = any (p_runs) and r.ended_at is not null order by r.id for update skip locked) l);
  -- A dead delivery that is being sent again is open by then.
  perform from retoma.deliveries d where d.run = any (v_runs) order by d.id for update;
  v_runs := array(select r.id from retoma.runs r where r.id = any (v_runs) and retoma.can_remove(r, v_runs, p_cause) order by r.id);
  if v_runs <> '{}' then
    perform retoma.roll_up_charges(v_runs);
    perform retoma.roll_up_decisions(v_runs);
    perform retoma.count_removals(v_now, v_runs, p_cause);
    perform retoma.delete_run_rows(v_runs);
    if p_cause = 'erased' then
      delete from retoma.notifications where run = any (v_runs);
    end if;
  end if;
  return v_runs;
end $$;

-- Whether nothing needs a run: no hold, no open child, no work that has not ended. Unless it is erased at once, also no open delivery,
-- no effect that a worker looks for, and no parent, which could run again and would miss its child.
create or replace function retoma.can_remove(p_run retoma.runs, p_runs uuid[], p_cause text) returns boolean stable language plpgsql as $$
begin
  return p_run.ended_at is not null
     and not exists (select from retoma.run_holds h where h.run = p_run.id)
     and not exists (select from retoma.runs c where c.parent is not null and (c.parent).run = p_run.id and c.ended_at is null)
     and not exists (select from retoma.external_work o where o.run = p_run.id and o.ended_at is null)
     and not retoma.has_active_jobs(p_run.id)
     and not exists (select from retoma.runs p
                      where p.id = (p_run.parent).run and p.id <> all (p_runs) and (p_cause <> 'erased' or p.ended_at is null))
     and (p_cause = 'erased'
          or not exists (select from retoma.deliveries d where d.run = p_run.id and d.ended_at is null)
         and not exists (select from retoma.pending_webhook_events e where e.run = p_run.id)
         and not exists (select from retoma.effects e where e.run = p_run.id and e.next_at is not null));
end $$;

-- Count the ends of runs that ended just now before their events are gone.
create or replace function retoma.count_recent_ends(p_now timestamptz, p_runs uuid[]) returns void language plpgsql as $$
begin
  if exists (select from retoma.runs r where r.id = any (p_runs) and r.ended_at > p_now - interval '1 hour') then
    perform retoma.update_metric_counters(10000);
  end if;
end $$;

-- Delete the charges of these runs, and add them to the hours in which they were recorded, in one statement: a charge that arrives
-- meanwhile stays, for `remove_orphaned_charges`.
create or replace function retoma.roll_up_charges(p_runs uuid[]) returns void language sql as $$
  with removed as (
    delete from retoma.charges where run = any (p_runs) returning *
  )
  insert into retoma.charge_rollups as t
    (hour, tenant, pipeline, step, provider, resource, charges, tokens_in, tokens_out, units, micros, unpriced)
  select date_trunc('hour', c.at, 'UTC'), c.tenant, coalesce(v.pipeline, ''), c.step, c.provider, c.resource, count(*), sum(c.tokens_in), sum(c.tokens_out),
         sum(c.units), coalesce(sum(c.micros), 0), count(*) filter (where c.micros is null)
    from removed c
    left join retoma.runs r on r.id = c.run
    left join retoma.versions v on v.id = r.version
   group by 1, 2, 3, 4, 5, 6
   order by 2, 1, 3, 4, 5, 6
      on conflict (tenant, hour, pipeline, step, provider, resource) do update
     set charges = t.charges + excluded.charges, tokens_in = t.tokens_in + excluded.tokens_in,
         tokens_out = t.tokens_out + excluded.tokens_out, units = t.units + excluded.units, micros = t.micros + excluded.micros,
         unpriced = t.unpriced + excluded.unpriced;
$$;

-- Keep how people decided at the reviews of these runs.
create or replace function retoma.roll_up_decisions(p_runs uuid[]) returns void language sql as $$
  insert into retoma.removed_decisions (decided_at, opened_at, due_at, tenant, pipeline, step, decided_by, decided_person, state, planned, is_first)
  select n.decided_at, n.opened_at, n.due_at, n.tenant, g.pipeline, n.step, n.decided_by, n.decided_person, n.state, n.planned, retoma.is_first_review(n)
    from retoma.reviews n
    join retoma.versions g on g.id = n.version
   where n.run = any (p_runs) and n.decided_at is not null and n.decided_by is not null;
$$;

create or replace function retoma.count_removals(p_now timestamptz, p_runs uuid[], p_cause text) returns void language sql as $$
  insert into retoma.run_removals as t (day, tenant, pipeline, cause, runs, jobs, last_at)
  select (p_now at time zone 'UTC')::date, r.tenant, v.pipeline, p_cause, count(*), sum(n.jobs), p_now
    from retoma.runs r
    join retoma.versions v on v.id = r.version,
         lateral (select count(*) as jobs from retoma.jobs j where j.run = r.id) n
   where r.id = any (p_runs)
   group by r.tenant, v.pipeline
   order by r.tenant, v.pipeline
      on conflict (day, tenant, pipeline, cause) do update
     set runs = t.runs + excluded.runs, jobs = t.jobs + excluded.jobs, last_at = excluded.last_at;
  update retoma.retention_progress set removed_runs = removed_runs + cardinality(p_runs);
$$;

-- Delete the rows of these runs in every table. A test finds a table with a run that is not here.
create or replace function retoma.delete_run_rows(p_runs uuid[]) returns void language sql as $$
  delete from retoma.delivery_attempts a where a.delivery in (select d.id from retoma.deliveries d where d.run = any (p_runs));
  delete from retoma.deliveries where run = any (p_runs);
  delete from retoma.pending_webhook_events where run = any (p_runs);
  delete from retoma.run_webhooks where run = any (p_runs);
  delete from retoma.action_keys k where k.subject in (select v.id from retoma.reviews v where v.run = any (p_runs) union all select unnest(p_runs));
  delete from retoma.review_drafts d where d.review in (select v.id from retoma.reviews v where v.run = any (p_runs));
  delete from retoma.reviews where run = any (p_runs);
  delete from retoma.callbacks where run = any (p_runs);
  delete from retoma.external_work where run = any (p_runs);
  delete from retoma.effects where run = any (p_runs);
  delete from retoma.attempt_providers where run = any (p_runs);
  delete from retoma.budget_reservations where run = any (p_runs);
  delete from retoma.budget_warnings where run = any (p_runs);
  delete from retoma.pending_reruns where run = any (p_runs);
  delete from retoma.stuck_runs where run = any (p_runs);
  delete from retoma.holdings where run = any (p_runs);
  delete from retoma.file_names where run = any (p_runs);
  delete from retoma.events where run = any (p_runs);
  delete from retoma.jobs where run = any (p_runs);
  delete from retoma.runs where id = any (p_runs);
$$;

-- Runs that `can_remove` keeps whatever the rules say, except for their parents and for jobs that have not ended.
create or replace function retoma.list_needed_runs() returns table (run uuid) stable language sql as $$
  select h.run from retoma.run_holds h
   union
  select (c.parent).run from retoma.runs c where c.parent is not null and c.ended_at is null
   union
  select o.run from retoma.external_work o where o.ended_at is null
   union
  select d.run from retoma.deliveries d where d.ended_at is null
   union
  select e.run from retoma.pending_webhook_events e
   union
  select e.run from retoma.effects e where e.next_at is not null;
$$;

-- About how many bytes these runs take in the database: their rows, which take 8 bytes more in a page, with the free space that each table
-- is created with and the share of its indexes.
create or replace function retoma.measure_runs(p_runs uuid[]) returns double precision stable language sql as $$
  select sum(t.bytes * 100 / f.fillfactor * pg_total_relation_size(t.name) / pg_table_size(t.name))
    from (select 'retoma.runs'::regclass as name, sum(pg_column_size(r.*) + 8) as bytes from retoma.runs r where r.id = any (p_runs)
           union all
          select 'retoma.jobs', sum(pg_column_size(j.*) + 8) from retoma.jobs j where j.run = any (p_runs)
           union all
          select 'retoma.events', sum(pg_column_size(e.*) + 8) from retoma.events e where e.run = any (p_runs)
           union all
          select 'retoma.charges', sum(pg_column_size(c.*) + 8) from retoma.charges c where c.run = any (p_runs)
           union all
          select 'retoma.attempt_providers', sum(pg_column_size(a.*) + 8) from retoma.attempt_providers a where a.run = any (p_runs)
           union all
          select 'retoma.reviews', sum(pg_column_size(v.*) + 8) from retoma.reviews v where v.run = any (p_runs)
           union all
          select 'retoma.effects', sum(pg_column_size(e.*) + 8) from retoma.effects e where e.run = any (p_runs)
           union all
          select 'retoma.external_work', sum(pg_column_size(o.*) + 8) from retoma.external_work o where o.run = any (p_runs)
           union all
          select 'retoma.callbacks', sum(pg_column_size(c.*) + 8) from retoma.callbacks c where c.run = any (p_runs)
           union all
          select 'retoma.file_names', sum(pg_column_size(f.*) + 8) from retoma.file_names f where f.run = any (p_runs)
           union all
          select 'retoma.run_webhooks', sum(pg_column_size(w.*) + 8) from retoma.run_webhooks w where w.run = any (p_runs)
           union all
          select 'retoma.deliveries', sum(pg_column_size(d.*) + 8) from retoma.deliveries d where d.run = any (p_runs)
           union all
          select 'retoma.delivery_attempts', sum(pg_column_size(a.*) + 8)
            from retoma.deliveries d
            join retoma.delivery_attempts a on a.delivery = d.id
           where d.run = any (p_runs)) t
    join pg_class c on c.oid = t.name,
         lateral (select coalesce(max(o.option_value::int), 100) as fillfactor from pg_options_to_table(c.reloptions) o where o.option_name = 'fillfactor') f
   where t.bytes > 0;
$$;
