-- name: list_profiles
-- The profiles of all tenants, or of one.
select t.name as tenant, p.value::text as value, p.revision, p.created_at, p.changed_at
  from retoma.profiles p
  join retoma.tenants t on t.id = p.tenant
 where p.app = :app and (:tenant::text is null or t.name = :tenant)
 order by t.name;

-- name: add_profile
insert into retoma.profiles (app, tenant, value, revision, created_at, changed_at)
values (:app, :tenant, :value, 1, retoma.now(), retoma.now())
    on conflict (app, tenant) do nothing
returning revision;

-- name: change_profile
-- If it still has the revision that the caller saw; any revision if none is given.
update retoma.profiles
   set value = :value, revision = revision + 1, changed_at = retoma.now()
 where app = :app and tenant = :tenant and (:revision::int is null or revision = :revision)
returning revision;

-- name: drop_profile
delete from retoma.profiles p
 using retoma.tenants t
 where t.id = p.tenant and p.app = :app and t.name = :tenant
returning p.revision;
