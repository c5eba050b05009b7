-- name: reserve_budget
select retoma.reserve_budget(:run, :step, :item, :revision, :fence, :micros) as passed;

-- name: list_budgets
-- Budgets with what is used of them now; with a run, those that limit it.
select b.id, t.name as tenant, b.pipeline, b.period, b.micros, b.action, b.warn_at, b.changed_at, b.changed_by,
       retoma.budget_starts_at(b, :run::uuid, n.now) as starts_at, retoma.budget_ends_at(b, n.now) as ends_at,
       case when u.is_known then retoma.budget_spent(b, :run::uuid, n.now) end as spent,
       case when u.is_known then retoma.budget_reserved(b, :run::uuid, null) end as reserved,
       (select count(*)::int from retoma.reviews v
         where v.budget = b.id and v.state = 'open' and (:run::uuid is null or v.run = :run::uuid)) as waiting,
       n.now
  from retoma.budgets b
  join retoma.tenants t on t.id = b.tenant
 cross join (select retoma.now() as now) n
 cross join lateral (select b.period <> 'run' or :run::uuid is not null as is_known) u
 where (:tenants::int[] is null or b.tenant = any (:tenants))
   and (:run::uuid is null or exists (select from retoma.runs r
                                  join retoma.versions v on v.id = r.version
                                 where r.id = :run::uuid and r.tenant = b.tenant and (b.pipeline is null or b.pipeline = v.pipeline)))
 order by t.name, b.pipeline nulls first, array_position(array['run', 'day', 'month'], b.period);

-- name: set_budget
with changed as (
  insert into retoma.budgets as b (tenant, pipeline, period, micros, action, warn_at, created_at, changed_at, changed_by)
  values (:tenant, :pipeline, :period, :micros, :action, :warn_at, retoma.now(), retoma.now(), :by)
      on conflict (tenant, pipeline, period)
      do update set micros = excluded.micros, action = excluded.action, warn_at = excluded.warn_at,
                    changed_at = excluded.changed_at, changed_by = excluded.changed_by
  returning b.id, b.changed_at
)
select c.id, retoma.recheck_reviews_of_budget(c.changed_at, c.id) from changed c;

-- name: remove_budget
with removed as (
  delete from retoma.budgets where id = :budget returning id
)
select r.id, retoma.recheck_reviews_of_budget(retoma.now(), r.id) from removed r;

-- name: list_budget_history
-- What was spent in the current period and those before it, as far as their sums are kept (`delete_old_records`). A run has none.
select p.starts_at, retoma.budget_spent(b, null, p.starts_at) as spent
  from retoma.budgets b
  join retoma.tenants t on t.id = b.tenant
 cross join lateral (
    select (date_trunc(b.period, retoma.now() at time zone t.time_zone)
            - case b.period when 'day' then n * interval '1 day' else n * interval '1 month' end) at time zone t.time_zone as starts_at
      from generate_series(0, :periods - 1) n) p
 where b.id = :budget and b.period <> 'run' and p.starts_at >= retoma.now() - interval '400 days'
 order by p.starts_at desc;

-- name: list_tenant_money
select name as tenant, time_zone, currency, currency_rate as rate, currency_rate_date as rate_date
  from retoma.tenants
 where :tenants::int[] is null or id = any (:tenants)
 order by name;

-- name: set_tenant_money
update retoma.tenants
   set time_zone = :time_zone, currency = :currency, currency_rate = :rate, currency_rate_date = :rate_date
 where id = :tenant
returning id;
