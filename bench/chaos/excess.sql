-- By how much the tenant $1 has passed its budgets. Late charges of attempts that were given up are nobody's reservation.
select greatest(0, u.spent + u.reserved - u.given_up - b.micros) as micros
  from retoma.budgets b
  join retoma.tenants t on t.id = b.tenant and t.name = $1
 cross join lateral (
    select retoma.budget_spent(b, null, n.now) as spent,
           retoma.budget_reserved(b, null, null) as reserved,
           (select coalesce(sum(c.micros), 0)
              from retoma.charges c
              join retoma.jobs j on j.run = c.run and j.step = c.step and j.item = c.item and j.revision = c.revision
             where c.tenant = b.tenant and (c.attempt < j.attempt or j.state = 'quarantined')) as given_up
      from (select retoma.now() as now) n) u;
