-- Find the person whom an identity provider has identified, or create one, and set the roles that its claims give. `p_roles` are
-- null if roles do not come from claims. The outcome is `known`, `linked` or `created`, or why nobody may log in: see
-- `retoma.server.oidc.SignOnFailure`. What changes has entries of the audit log, with the address of the browser.
create or replace function retoma.sign_on(
  p_issuer text, p_subject text, p_email text, p_is_email_verified boolean, p_name text, p_may_create boolean,
  p_tenants int[], p_roles text[], p_address text) returns table (outcome text, person int) language plpgsql as $$
declare
  v_person retoma.people;
  v_outcome text := 'known';
  v_ended text[];
begin
  select * into v_person from retoma.people p where p.oidc_issuer = p_issuer and p.oidc_subject = p_subject for update;
  if v_person.id is null then
    -- Anybody can claim an address at some providers: only one that the provider has verified names an existing account.
    if p_email is null or not p_is_email_verified then
      return query select 'email_not_verified', null::int;
      return;
    end if;
    v_outcome := 'linked';
    select * into v_person from retoma.people p where p.email = p_email for update;
    if v_person.id is null then
      if not p_may_create then
        return query select 'unknown_person', null::int;
        return;
      elsif cardinality(p_roles) = 0 then
        return query select 'no_role', null::int;
        return;
      end if;
      v_outcome := 'created';
      -- The provider may know two people of one name, whom the history of decisions must tell apart.
      insert into retoma.people (name, email, created_at)
      select case when exists (select from retoma.people o where lower(o.name) = lower(p_name)) then p_name || ' (' || p_email || ')'
                  else p_name end, p_email, retoma.now()
      returning * into v_person;
    elsif v_person.oidc_issuer = p_issuer then
      return query select 'email_of_another', v_person.id;
      return;
    end if;
  end if;
  if v_person.disabled_at is not null then
    return query select 'disabled', v_person.id;
    return;
  end if;
  if v_outcome <> 'known' then
    update retoma.people p set oidc_issuer = p_issuer, oidc_subject = p_subject where p.id = v_person.id;
  end if;
  if v_outcome = 'linked' then
    -- The person who sent the invitation may have used its link: that password must not reach what the claims give.
    v_ended := retoma.end_credentials(v_person.id);
  end if;
  if v_outcome = 'created' then
    perform retoma.record_sign_on(v_person.id, p_address, 'person.create', null, null, jsonb_build_object('name', v_person.name, 'email', p_email));
  elsif v_outcome = 'linked' then
    perform retoma.record_sign_on(v_person.id, p_address, 'person.link', null, null,
                                  jsonb_build_object('email', v_person.email, 'issuer', p_issuer, 'ended', v_ended));
  end if;
  if p_roles is not null then
    perform retoma.set_claimed_roles(v_person.id, p_tenants, p_roles, p_address);
  end if;
  if not exists (select from retoma.person_roles r where r.person = v_person.id) then
    v_outcome := 'no_role';
  end if;
  return query select v_outcome, v_person.id;
end $$;

-- Replace the roles that claims gave a person earlier. A role that an administrator gave stays as it is.
create or replace function retoma.set_claimed_roles(p_person int, p_tenants int[], p_roles text[], p_address text)
returns void language plpgsql as $$
declare
  v_change record;
  v_ended text[];
begin
  for v_change in
    select coalesce(r.tenant, c.tenant) as tenant, r.role as held, c.role as claimed
      from (select * from retoma.person_roles where person = p_person) r
      full join unnest(p_tenants, p_roles) as c (tenant, role) on coalesce(c.tenant, 0) = coalesce(r.tenant, 0)
     where r.role is distinct from c.role and (r.from_claim or r.role is null)
     order by 1 nulls first
  loop
    delete from retoma.person_roles r where r.person = p_person and r.tenant is not distinct from v_change.tenant;
    v_ended := '{}';
    if v_change.claimed is not null then
      v_ended := retoma.check_credentials(p_person, v_change.tenant, v_change.claimed);
      insert into retoma.person_roles (person, tenant, role, from_claim) values (p_person, v_change.tenant, v_change.claimed, true);
    end if;
    perform retoma.record_sign_on(
      p_person, p_address, case when v_change.claimed is null then 'person.remove_role' else 'person.set_role' end, v_change.tenant,
      retoma.describe_role(p_person, v_change.tenant, v_change.held),
      retoma.describe_role(p_person, v_change.tenant, v_change.claimed, v_ended));
  end loop;
end $$;

-- Write what a login at the identity provider has changed. The provider decided it, not the person.
create or replace function retoma.record_sign_on(
  p_person int, p_address text, p_action text, p_tenant int, p_before jsonb, p_after jsonb) returns void language sql as $$
  select retoma.record_audit_entry(gen_random_uuid(), 'engine', 'single sign-on', 'single sign-on', p_address, p_action, 'person',
                                   p_person::text, p_tenant, p_before::json, p_after::json);
$$;

-- A role of a person as an entry of the audit log shows it, with the credentials that it has ended.
create or replace function retoma.describe_role(p_person int, p_tenant int, p_role text, p_ended text[] default '{}')
returns jsonb stable language sql as $$
  select jsonb_build_object('email', p.email, 'tenant', (select t.name from retoma.tenants t where t.id = p_tenant), 'role', p_role)
         || case when p_ended = '{}' then '{}' else jsonb_build_object('ended', p_ended) end
    from retoma.people p where p.id = p_person;
$$;
