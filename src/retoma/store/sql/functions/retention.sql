-- Remove the next runs that have been kept long enough: at most `p_limit`, and no more after `p_jobs` jobs. Only one process does it at a
-- time, and each call continues where the last one stopped: between two passes, its version is 0. Returns `working`, `idle` between two passes, or `busy` if another
-- process does it.
create or replace function retoma.remove_expired_runs(
  p_default interval, p_default_failed interval, p_limit int, p_jobs int, p_pause interval, out o_state text, out o_removed int)
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_progress retoma.retention_progress;
  v_expired uuid[];
  v_checked int;
begin
  o_removed := 0;
  if not retoma.try_lock_retention() then
    o_state := 'busy';
    return;
  end if;
  select * into v_progress from retoma.retention_progress;
  if v_progress.version = 0 and v_progress.pass_ended_at > v_now - p_pause then
    o_state := 'idle';
    return;
  end if;
  o_state := 'working';
  for round in 1..100 loop
    select b.runs, b.last, b.checked into v_expired, v_progress.after_run, v_checked
      from retoma.next_expired_runs(v_progress.version, v_progress.after_run, p_limit, p_jobs, p_default, p_default_failed) b;
    exit when v_checked > 0;
    select min(v.id), null into v_progress.version, v_progress.after_run from retoma.versions v where v.id > v_progress.version;
    if v_progress.version is null then
      v_progress.version := 0;
      v_progress.pass_ended_at := v_now;
      exit;
    end if;
  end loop;
  o_removed := cardinality(retoma.remove_runs(coalesce(v_expired, '{}'), 'expired'));
  update retoma.retention_progress
     set version = v_progress.version, after_run = v_progress.after_run, pass_ended_at = v_progress.pass_ended_at;
end $$;

-- Whether this transaction may remove runs now: one at a time does.
create or replace function retoma.try_lock_retention() returns boolean language sql as $$
  select pg_try_advisory_xact_lock(hashtextextended('retention', 0));
$$;

-- The next batch of a version: the runs to remove, the last one that was checked, and how many were.
create or replace function retoma.next_expired_runs(
  p_version int, p_after uuid, p_limit int, p_jobs int, p_default interval, p_default_failed interval)
returns table (runs uuid[], last uuid, checked int) stable language sql as $$
  with checked as materialized (
    select e.run, e.is_expired, count(*) filter (where e.is_expired) over (order by e.run) as number
      from retoma.list_expired_runs(p_version, p_after, 10 * p_limit, p_default, p_default_failed) e
  ), measured as materialized (
    select c.run, sum(n.jobs) over (order by c.run) - n.jobs as jobs_before
      from checked c,
           lateral (select count(*) as jobs from (select from retoma.jobs j where j.run = c.run limit p_jobs) limited) n
     where c.is_expired and c.number <= p_limit
  ), chosen as materialized (
    select m.run from measured m where m.jobs_before < p_jobs
  ), first_left as (
    -- Those that did not fit are the first of the next batch.
    select c.run from checked c where c.is_expired and c.run not in (select run from chosen) order by c.run limit 1
  )
  select array(select run from chosen order by run),
         (select c.run from checked c left join first_left f on true where f.run is null or c.run < f.run order by c.run desc limit 1),
         (select count(*)::int from checked);
$$;

-- Remove one run and its child runs at once, whatever the rules say. Returns how many, or null if the tenant has no such run, and of how
-- many files they were the last runs to name them. Raises RT008 for a run that has not ended, and RT007 for one that is held.
create or replace function retoma.erase_run(p_run uuid, p_tenant int, out o_runs int, out o_files int) language plpgsql as $$
declare
  v_runs uuid[] := retoma.list_descendants(p_run, p_tenant);
begin
  if v_runs <> '{}' then
    select e.o_runs, e.o_files into o_runs, o_files from retoma.erase_runs(v_runs) e;
  end if;
end $$;

create or replace function retoma.list_descendants(p_run uuid, p_tenant int) returns uuid[] stable language sql as $$
  with recursive family as (
    select r.id from retoma.runs r where r.id = p_run and (p_tenant is null or r.tenant = p_tenant)
    union
    select child.id
      from family f, lateral (select r.id from retoma.runs r where r.parent is not null and (r.parent).run = f.id offset 0) child
  )
  select array(select id from family);
$$;

-- Erase the next runs of a tenant, and return how many, 0 if none is left, and of how many files they were the last runs to name them.
create or replace function retoma.erase_runs_of_tenant(p_tenant int, p_limit int, out o_runs int, out o_files int) language plpgsql as $$
begin
  select e.o_runs, e.o_files into o_runs, o_files
    from retoma.erase_runs(array(select r.id from retoma.runs r where r.tenant = p_tenant order by r.id limit p_limit)) e;
end $$;

create or replace function retoma.erase_runs(p_runs uuid[], out o_runs int, out o_files int) language plpgsql as $$
declare
  v_digests bytea[] := array(select distinct n.digest from retoma.file_names n where n.run = any (p_runs));
  v_removed uuid[] := retoma.remove_runs(p_runs, 'erased');
begin
  if cardinality(v_removed) < cardinality(p_runs) then
    perform retoma.explain_left_runs(array(select unnest(p_runs) except select unnest(v_removed)));
  end if;
  o_runs := cardinality(v_removed);
  o_files := (select count(*) from unnest(v_digests) as g (digest) where not exists (select from retoma.file_names n where n.digest = g.digest));
end $$;

-- Raise why these runs could not be erased.
create or replace function retoma.explain_left_runs(p_runs uuid[]) returns void language plpgsql as $$
declare
  v_found record;
begin
  select h.run, h.reason into v_found from retoma.run_holds h where h.run = any (p_runs) order by h.run limit 1;
  if found then
    raise exception '%', v_found.run using errcode = 'RT007', detail = v_found.reason;
  end if;
  select r.id, r.state into v_found from retoma.runs r where r.id = any (p_runs) and not retoma.can_remove(r, p_runs, 'erased') order by r.id limit 1;
  if found then
    raise exception '%', v_found.id using errcode = 'RT008', detail = v_found.state::text;
  end if;
  -- Somebody was changing them.
  raise exception 'the runs are locked' using errcode = 'lock_not_available';
end $$;

-- Delete what is left of a tenant after its runs: keys, profiles, facts, inbound events, webhooks and access. Its name stays, for the
-- audit log and what its runs have cost. Raises RT008 if it has runs again.
create or replace function retoma.erase_tenant_rows(p_tenant int) returns void language plpgsql as $$
declare
  v_run uuid;
begin
  select r.id into v_run from retoma.runs r where r.tenant = p_tenant limit 1;
  if found then
    raise exception '%', v_run using errcode = 'RT008', detail = 'running';
  end if;
  delete from retoma.start_keys where tenant = p_tenant;
  delete from retoma.profiles where tenant = p_tenant;
  delete from retoma.tenant_facts where tenant = p_tenant;
  delete from retoma.tenant_files where tenant = p_tenant;
  delete from retoma.inbound_events where tenant = p_tenant;
  delete from retoma.inbound_streams s where s.tenant = p_tenant
     and not exists (select from retoma.inbound_events e where e.app = s.app and e.stream = s.stream);
  delete from retoma.endpoints where tenant = p_tenant;
  delete from retoma.webhook_secrets where tenant = p_tenant;
  delete from retoma.retention_rules where tenant = p_tenant;
  delete from retoma.schedules where tenant = p_tenant;
  delete from retoma.budget_warnings w using retoma.budgets b where b.id = w.budget and b.tenant = p_tenant;
  delete from retoma.budgets where tenant = p_tenant;
  delete from retoma.connections where tenant = p_tenant;
  delete from retoma.person_roles where tenant = p_tenant;
  delete from retoma.removed_decisions where tenant = p_tenant;
  delete from retoma.notifications where tenant = p_tenant;
  delete from retoma.bulk_targets t using retoma.bulk_actions b where b.id = t.action and b.tenant = p_tenant;
  delete from retoma.bulk_actions where tenant = p_tenant;
  update retoma.api_keys set revoked_at = retoma.now() where tenant = p_tenant and revoked_at is null;
end $$;

-- Keep a run whatever the rules say. Returns false if the tenant has no such run. The lock waits for a removal that has begun.
create or replace function retoma.hold_run(p_run uuid, p_tenant int, p_by text, p_reason text) returns boolean language plpgsql as $$
begin
  perform from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant) for share;
  if not found then
    return false;
  end if;
  insert into retoma.run_holds (run, held_by, held_at, reason) values (p_run, p_by, retoma.now(), p_reason)
      on conflict (run) do update set held_by = excluded.held_by, held_at = excluded.held_at, reason = excluded.reason;
  return true;
end $$;

-- Delete rows that nothing needs any more, at most `p_limit` of each kind: keys whose runs were removed, entries of the audit log, bulk
-- actions and workers that ended, links of accounts that expired, figures, events of other systems, and what `old_rows.sql` lists.
-- Returns how many. Null keeps for ever.
create or replace function retoma.delete_old_rows(p_keep_keys interval, p_keep_audit interval, p_keep_inbound interval, p_limit int)
returns int language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_count int;
  v_total int := 0;
begin
  if not retoma.try_lock_retention() then
    return 0;
  end if;
  delete from retoma.start_keys where ctid = any (array(
    select k.ctid from retoma.start_keys k
     where k.created_at < v_now - p_keep_keys and not exists (select from retoma.runs r where r.id = k.run) limit p_limit));
  get diagnostics v_count = row_count;
  v_total := v_total + v_count;
  perform set_config('retoma.deletes_old_audit_entries', 'on', true);
  delete from retoma.audit_log where ctid = any (array(select a.ctid from retoma.audit_log a where a.at < v_now - p_keep_audit limit p_limit));
  get diagnostics v_count = row_count;
  v_total := v_total + v_count;
  perform set_config('retoma.deletes_old_audit_entries', 'off', true);
  delete from retoma.removed_decisions where ctid = any (array(
    select d.ctid from retoma.removed_decisions d where d.decided_at < v_now - p_keep_audit limit p_limit));
  get diagnostics v_count = row_count;
  v_total := v_total + v_count;
  delete from retoma.bulk_actions where id = any (array(
    select b.id from retoma.bulk_actions b where b.created_at < v_now - interval '1 year' and b.ended_at is not null
       and not exists (select from retoma.bulk_targets t where t.action = b.id) limit p_limit));
  delete from retoma.workers where id = any (array(
    select w.id from retoma.workers w where w.ended_at < v_now - interval '30 days'
       and not exists (select from retoma.worker_links l where l.worker = w.id)
       and not exists (select from retoma.worker_stacks s where s.worker = w.id) limit p_limit));
  delete from retoma.account_links where expires_at < v_now - interval '30 days';
  delete from retoma.run_removals where day < (v_now - interval '400 days')::date;
  v_total := v_total + retoma.remove_inbound_events(v_now, v_now - p_keep_inbound, p_limit)
           + retoma.remove_orphaned_charges(p_limit)
           + retoma.delete_old_records(v_now, p_limit);
  -- Last, because it locks the table.
  return v_total + retoma.compact_charge_rollups(date_trunc('day', v_now - interval '13 months', 'UTC'), p_limit);
end $$;
