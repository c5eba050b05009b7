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
