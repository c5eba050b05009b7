-- name: add_tenant
insert into retoma.tenants (name)
values (:name)
    on conflict (name) do nothing;

-- name: find_tenant
select id
  from retoma.tenants
 where name = :name;

-- name: list_tenants
select id, name
  from retoma.tenants;

-- name: find_owner
-- The tenant of a run, review, delivery, endpoint or schedule.
select tenant from retoma.runs where :kind = 'run' and id = :uuid::uuid
 union all
select tenant from retoma.reviews where :kind = 'review' and id = :uuid
 union all
select tenant from retoma.deliveries where :kind = 'delivery' and id = :uuid
 union all
select tenant from retoma.endpoints where :kind = 'endpoint' and id = :number::int
 union all
select tenant from retoma.schedules where :kind = 'schedule' and id = :number;
