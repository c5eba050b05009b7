-- Give a person this role in the tenant, or in all tenants, in place of the one held there. `ended` are the credentials that it ends.
-- The outcome is `changed`, or `last_administrator` if nobody who can log in would administer all tenants: then nothing changes.
create or replace function retoma.set_role(p_person int, p_tenant int, p_role text, p_from_claim boolean)
returns table (outcome text, ended text[]) language plpgsql as $$
declare
  v_held text;
  v_ended text[] := '{}';
begin
  if p_tenant is null and p_role <> 'administrator' and retoma.is_last_administrator(p_person) then
    return query select 'last_administrator', v_ended;
    return;
  end if;
  select r.role into v_held from retoma.person_roles r where r.person = p_person and r.tenant is not distinct from p_tenant;
  if v_held is null or retoma.role_rank(v_held) < retoma.role_rank(p_role) then
    v_ended := retoma.check_credentials(p_person, p_tenant, p_role);
  end if;
  insert into retoma.person_roles (person, tenant, role, from_claim)
  values (p_person, p_tenant, p_role, p_from_claim)
      on conflict (person, tenant) do update set role = excluded.role, from_claim = excluded.from_claim;
  return query select 'changed', v_ended;
end $$;

create or replace function retoma.remove_role(p_person int, p_tenant int) returns text language plpgsql as $$
begin
  if p_tenant is null and retoma.is_last_administrator(p_person) then
    return 'last_administrator';
  end if;
  delete from retoma.person_roles r where r.person = p_person and r.tenant is not distinct from p_tenant;
  return 'changed';
end $$;

-- Disable a person, end the sessions and make all links useless. A second call keeps the first time.
create or replace function retoma.disable_person(p_person int) returns text language plpgsql as $$
begin
  if retoma.is_last_administrator(p_person) then
    return 'last_administrator';
  end if;
  delete from retoma.person_sessions s where s.person = p_person;
  update retoma.account_links l set used_at = retoma.now() where l.person = p_person and l.used_at is null;
  update retoma.people p set disabled_at = coalesce(p.disabled_at, retoma.now()) where p.id = p_person;
  return 'changed';
end $$;

-- Whether nobody else who can log in administers all tenants. Locks the administrators, so that of two who are removed at the same
-- time, the second one stays.
create or replace function retoma.is_last_administrator(p_person int) returns boolean language plpgsql as $$
begin
  perform from retoma.person_roles r where r.tenant is null and r.role = 'administrator' order by r.person for update;
  return exists (select
                   from retoma.person_roles r
                   join retoma.people p on p.id = r.person
                  where r.person = p_person and r.tenant is null and r.role = 'administrator' and p.disabled_at is null)
     and not exists (select
                       from retoma.person_roles r
                       join retoma.people p on p.id = r.person
                      where r.person <> p_person and r.tenant is null and r.role = 'administrator' and p.disabled_at is null
                        and (p.password_hash is not null or p.oidc_subject is not null));
end $$;
