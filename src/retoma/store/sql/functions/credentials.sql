-- End the credentials of a person who is given a role, if the person who handed them out could not grant that role: that person
-- may know the password, or have kept the link. Returns what has ended.
create or replace function retoma.check_credentials(p_person int, p_tenant int, p_role text) returns text[] language plpgsql as $$
declare
  v_person retoma.people;
begin
  -- Wait for a link that is being used: its password would survive otherwise.
  select * into v_person from retoma.people p where p.id = p_person for update;
  if v_person.password_hash is not null and not retoma.includes_role(v_person.grantable, p_tenant, p_role)
     or exists (select from retoma.account_links l
                 where l.person = p_person and l.used_at is null and l.expires_at > retoma.now()
                   and not retoma.includes_role(l.grantable, p_tenant, p_role)) then
    return retoma.end_credentials(p_person);
  end if;
  return '{}';
end $$;

-- Whether one of these roles includes the role in that tenant; null: in all tenants.
create or replace function retoma.includes_role(p_grantable jsonb, p_tenant int, p_role text) returns boolean immutable language sql as $$
  select exists (select
                   from jsonb_to_recordset(p_grantable) as g (tenant int, role text)
                  where (g.tenant is null or g.tenant = p_tenant) and retoma.role_rank(g.role) >= retoma.role_rank(p_role));
$$;

-- Forget the password and the second factor, log the person out everywhere, and make all links useless. Returns what there was.
create or replace function retoma.end_credentials(p_person int) returns text[] language plpgsql as $$
declare
  v_person retoma.people;
  v_sessions int;
  v_links int;
begin
  select * into v_person from retoma.people p where p.id = p_person for update;
  delete from retoma.person_sessions s where s.person = p_person;
  get diagnostics v_sessions = row_count;
  update retoma.account_links l set used_at = retoma.now() where l.person = p_person and l.used_at is null and l.expires_at > retoma.now();
  get diagnostics v_links = row_count;
  delete from retoma.recovery_codes c where c.person = p_person;
  update retoma.people p
     set password_hash = null, grantable = '[]', totp_secret = null, totp_confirmed_at = null, totp_last_step = null
   where p.id = p_person;
  return array_remove(array[case when v_person.password_hash is not null then 'password' end,
                            case when v_person.totp_confirmed_at is not null then 'second factor' end,
                            case when v_sessions > 0 then 'sessions' end, case when v_links > 0 then 'links' end], null);
end $$;
