-- Budgets. What is spent is the sum of the charges; what is reserved, the estimates of the attempts that run. A hard budget is
-- checked before an attempt (`reserve_budget`), by one attempt of a tenant at a time.

-- Sum new charges by quarter of an hour, and warn of budgets that they use up.
create or replace function retoma.count_charges() returns trigger language plpgsql as $$
declare
  v_tenant int;
begin
  insert into retoma.charge_sums as s (tenant, quarter, pipeline, micros)
  select n.tenant, date_bin('15 minutes', n.at, 'epoch'), coalesce(v.pipeline, ''), sum(n.micros)
    from new_charges n
    left join retoma.runs r on r.id = n.run
    left join retoma.versions v on v.id = r.version
   where n.micros > 0
   group by 1, 2, 3
   order by 1, 2, 3
      on conflict (tenant, quarter, pipeline) do update set micros = s.micros + excluded.micros;
  for v_tenant in
    select distinct b.tenant from retoma.budgets b where b.tenant in (select n.tenant from new_charges n) order by b.tenant
  loop
    begin
      perform retoma.lock_budgets(v_tenant);
      perform retoma.warn_of_budgets(retoma.now(), v_tenant, array(select distinct n.run from new_charges n where n.tenant = v_tenant));
    exception when others then
      -- The charges are written, whatever happens to a warning.
      raise warning 'budgets of tenant % were not checked: %', v_tenant, sqlerrm;
    end;
  end loop;
  return null;
end $$;

create or replace trigger charges_are_counted
  after insert on retoma.charges referencing new table as new_charges for each statement
  execute function retoma.count_charges();

-- One at a time reserves money of a tenant, or warns of its budgets: everybody sees what the one before did.
create or replace function retoma.lock_budgets(p_tenant int) returns void language sql as $$
  select pg_advisory_xact_lock(hashtextextended('budgets' || p_tenant, 0));
$$;

-- When the period of a budget began; `p_run` is the run that a budget per run is about.
create or replace function retoma.budget_starts_at(p_budget retoma.budgets, p_run uuid, p_at timestamptz) returns timestamptz
stable language sql as $$
  select case when p_budget.period = 'run' then (select r.created_at from retoma.runs r where r.id = p_run)
              else (select date_trunc(p_budget.period, p_at, t.time_zone) from retoma.tenants t where t.id = p_budget.tenant) end;
$$;

-- When it ends; null for a run.
create or replace function retoma.budget_ends_at(p_budget retoma.budgets, p_at timestamptz) returns timestamptz stable language sql as $$
  select (date_trunc(p_budget.period, p_at at time zone t.time_zone)
          + case p_budget.period when 'day' then interval '1 day' else interval '1 month' end) at time zone t.time_zone
    from retoma.tenants t
   where t.id = p_budget.tenant and p_budget.period <> 'run';
$$;

-- What was spent in the period at this time, or by this run.
create or replace function retoma.budget_spent(p_budget retoma.budgets, p_run uuid, p_at timestamptz) returns bigint stable language sql as $$
  select case when p_budget.period = 'run'
    then (select coalesce(sum(c.micros), 0)::bigint from retoma.charges c where c.run = p_run)
    else (select coalesce(sum(s.micros), 0)::bigint
            from retoma.charge_sums s
           where s.tenant = p_budget.tenant and (p_budget.pipeline is null or s.pipeline = p_budget.pipeline)
             and s.quarter >= retoma.budget_starts_at(p_budget, p_run, p_at) and s.quarter < retoma.budget_ends_at(p_budget, p_at)) end;
$$;

-- What running attempts may still spend of a budget, other than this job. The charges of an attempt are subtracted.
create or replace function retoma.budget_reserved(p_budget retoma.budgets, p_run uuid, p_except retoma.job_key) returns bigint
stable language sql as $$
  select coalesce(sum(greatest(0, v.micros - c.micros)), 0)::bigint
    from retoma.budget_reservations v,
         lateral (select coalesce(sum(c.micros), 0) as micros
                    from retoma.charges c
                   where c.run = v.run and c.step = v.step and c.item = v.item and c.revision = v.revision
                     and c.at >= v.reserved_at) c
   where v.tenant = p_budget.tenant and (p_budget.pipeline is null or v.pipeline = p_budget.pipeline)
     and (p_budget.period <> 'run' or v.run = p_run)
     and (v.run, v.step, v.item, v.revision)::retoma.job_key is distinct from p_except
     and retoma.is_reserved(v);
$$;

-- Whether a reservation counts: its attempt runs, or is about to start, or waits for external work that has not failed.
create or replace function retoma.is_reserved(p_reservation retoma.budget_reservations) returns boolean stable language sql as $$
  select exists (
    select from retoma.jobs j
     where j.run = p_reservation.run and j.step = p_reservation.step and j.item = p_reservation.item
       and j.revision = p_reservation.revision
       and (j.state = 'running' and j.fence = p_reservation.fence
            or j.state = 'ready' and j.fence = p_reservation.fence - 1
            or j.state in ('ready', 'running', 'parked') and retoma.is_being_paid(j)));
$$;

-- Whether a job has external work that continues or has succeeded: its cost cannot be avoided any more.
create or replace function retoma.is_being_paid(p_job retoma.jobs) returns boolean stable language sql as $$
  select exists (select from retoma.external_work o
                  where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision
                    and (o.ended_at is null or o.state = 'succeeded'));
$$;

-- The hard budgets that limit a run.
create or replace function retoma.hard_budgets(p_tenant int, p_pipeline text) returns setof retoma.budgets stable language sql as $$
  select b.* from retoma.budgets b
   where b.tenant = p_tenant and b.action = 'review' and (b.pipeline is null or b.pipeline = p_pipeline)
   order by b.id;
$$;

-- Reserve what an attempt is estimated to cost. If a hard budget would be passed, reserve nothing and return its facts. An attempt
-- without an estimate (`p_micros` is null) reserves nothing, and only needs a budget that is not used up.
create or replace function retoma.reserve_budget(
  p_run uuid, p_step text, p_item text, p_revision int, p_fence int, p_micros bigint) returns json
language plpgsql as $$
declare
  v_now timestamptz;
  v_job retoma.jobs;
  v_key retoma.job_key := (p_run, p_step, p_item, p_revision);
  v_pipeline text;
  v_passed json;
begin
  select j.* into v_job from retoma.jobs j where j.run = p_run and j.step = p_step and j.item = p_item and j.revision = p_revision;
  select v.pipeline into v_pipeline from retoma.versions v where v.id = v_job.version;
  if not exists (select from retoma.hard_budgets(v_job.tenant, v_pipeline)) or retoma.is_being_paid(v_job) then
    return null;
  end if;
  perform retoma.lock_budgets(v_job.tenant);
  v_now := retoma.now();
  delete from retoma.budget_reservations v where v.tenant = v_job.tenant and not retoma.is_reserved(v);
  if not retoma.may_pass_budgets(v_job) then
    -- What is spent and what is reserved is read in one statement: an attempt that ends meanwhile counts once.
    select retoma.describe_passed_budget(b, p_run, v_now, s.spent, s.reserved, p_micros) into v_passed
      from retoma.hard_budgets(v_job.tenant, v_pipeline) b,
           lateral (select retoma.budget_spent(b, p_run, v_now) as spent, retoma.budget_reserved(b, p_run, v_key) as reserved) s
     where case when p_micros is null then s.spent + s.reserved >= b.micros else s.spent + s.reserved + p_micros > b.micros end
     limit 1;
    if v_passed is not null then
      return v_passed;
    end if;
  end if;
  insert into retoma.budget_reservations (run, step, item, revision, fence, tenant, pipeline, micros, reserved_at)
  select p_run, p_step, p_item, p_revision, p_fence, v_job.tenant, v_pipeline, p_micros, v_now
   where p_micros is not null
      on conflict (run, step, item, revision)
      do update set fence = excluded.fence, micros = excluded.micros, reserved_at = excluded.reserved_at;
  return null;
end $$;

-- Whether a person let this job continue although it passes a budget.
create or replace function retoma.may_pass_budgets(p_job retoma.jobs) returns boolean stable language sql as $$
  select exists (select from retoma.reviews v
                  where v.run = p_job.run and v.step = p_job.step and v.item = p_job.item and v.revision = p_job.revision
                    and v.budget is not null and v.state = 'approved' and v.via <> 'budget' and v.applied_at is not null);
$$;

create or replace function retoma.describe_passed_budget(
  p_budget retoma.budgets, p_run uuid, p_at timestamptz, p_spent bigint, p_reserved bigint, p_estimate bigint) returns json
stable language sql as $$
  select json_build_object(
    'id', p_budget.id, 'tenant', t.name, 'pipeline', p_budget.pipeline, 'period', p_budget.period,
    'starts_at', retoma.budget_starts_at(p_budget, p_run, p_at), 'time_zone', t.time_zone,
    'limit', p_budget.micros, 'spent', p_spent, 'reserved', p_reserved, 'estimate', p_estimate)
    from retoma.tenants t where t.id = p_budget.tenant;
$$;

-- Let a job that waits because of a budget continue if it no longer passes it: the limit was raised, a period has begun, or others
-- have cost less. Otherwise look again in a minute.
create or replace function retoma.recheck_budget(p_now timestamptz, p_review retoma.reviews) returns void language plpgsql as $$
declare
  v_budget retoma.budgets;
  v_fence int;
  v_passed json;
begin
  -- This transaction may hold the lock of another tenant: do not wait, or two could wait for each other.
  if not pg_try_advisory_xact_lock(hashtextextended('budgets' || p_review.tenant, 0)) then
    update retoma.reviews set next_at = p_now + interval '1 second' where id = p_review.id;
    return;
  end if;
  select j.fence into v_fence from retoma.jobs j
   where j.run = p_review.run and j.step = p_review.step and j.item = p_review.item and j.revision = p_review.revision and j.state = 'parked';
  v_passed := retoma.reserve_budget(p_review.run, p_review.step, p_review.item, p_review.revision, v_fence + 1,
                                    (p_review.reason #>> '{budget,estimate}')::bigint);
  if v_fence is null or v_passed is not null then
    update retoma.reviews set next_at = p_now + interval '1 minute' where id = p_review.id;
    return;
  end if;
  select b.* into v_budget from retoma.budgets b where b.id = p_review.budget and b.changed_at >= p_review.opened_at;
  update retoma.reviews
     set state = 'approved', decided_by = coalesce(v_budget.changed_by, 'retoma'), via = 'budget', decided_at = p_now, effective_at = p_now,
         ended_at = p_now
   where id = p_review.id;
  perform retoma.log_review_event(p_now, p_review, jsonb_build_object(
    'what', 'approved', 'by', coalesce(v_budget.changed_by, 'retoma'), 'via', 'budget'));
  perform retoma.apply_decision(p_now, p_review.id);
end $$;

-- Look at the jobs that wait because of this budget soon: it has changed or was removed.
create or replace function retoma.recheck_reviews_of_budget(p_now timestamptz, p_budget int) returns void language sql as $$
  update retoma.reviews v set next_at = p_now where v.budget = p_budget and v.state = 'open';
$$;

-- Warn of the budgets of a tenant that are used up to a share, also by these runs.
create or replace function retoma.warn_of_budgets(p_now timestamptz, p_tenant int, p_runs uuid[]) returns void language sql as $$
  select retoma.warn_of_budget(p_now, b, u.run)
    from retoma.budgets b
    left join (select r.id as run, v.pipeline
                 from retoma.runs r
                 join retoma.versions v on v.id = r.version
                where r.id = any (p_runs)) u
      on b.period = 'run' and (b.pipeline is null or b.pipeline = u.pipeline)
   where b.tenant = p_tenant and (b.period <> 'run' or u.run is not null)
   order by b.id, u.run;
$$;

create or replace function retoma.warn_of_budget(p_now timestamptz, p_budget retoma.budgets, p_run uuid) returns void language sql as $$
  with used as (
    select retoma.budget_spent(p_budget, p_run, p_now) as spent, retoma.budget_starts_at(p_budget, p_run, p_now) as starts_at
  ), warned as (
    insert into retoma.budget_warnings (budget, starts_at, run, micros, level, spent, warned_at)
    select p_budget.id, u.starts_at, p_run, p_budget.micros, l.level, u.spent, p_now
      from used u,
           lateral (select case when u.spent >= p_budget.micros then 'reached'
                                when u.spent >= p_budget.micros * p_budget.warn_at then 'near' end as level) l
     where l.level is not null
        on conflict do nothing
    returning *
  )
  select retoma.notify_of_budget(
           p_now, p_budget.tenant, concat_ws(' ', w.budget, w.starts_at, w.run, w.micros, w.level),
           json_build_object('name', coalesce(p_budget.pipeline, t.name), 'period', p_budget.period, 'used', w.spent, 'limit', w.micros))
    from warned w
    join retoma.tenants t on t.id = p_budget.tenant;
$$;
