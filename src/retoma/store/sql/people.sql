-- name: add_person
-- Add a person. Adds nothing if the address is taken.
insert into retoma.people (name, email, language, time_zone, invited_by, created_at)
values (:name, :email, :language, :time_zone, :invited_by, retoma.now())
    on conflict (email) do nothing
returning id;

-- name: list_people
-- By name, with their roles: that for all tenants first. With tenants, those with a role there and those whom this actor invited.
select p.id, p.name, p.email, p.language, p.time_zone, p.password_hash is not null as has_password,
       p.totp_confirmed_at is not null as has_second_factor, p.oidc_subject is not null as is_linked, p.created_at, p.disabled_at,
       coalesce((select json_agg(json_build_object('tenant', t.name, 'role', r.role, 'from_claim', r.from_claim)
                                 order by t.name collate "C" nulls first)
                   from retoma.person_roles r
                   left join retoma.tenants t on t.id = r.tenant
                  where r.person = p.id), '[]'::json)::text as roles
  from retoma.people p
 where (:ids::int[] is null or p.id = any (:ids))
   and (:email::text is null or p.email = :email)
   and (:include_disabled or p.disabled_at is null)
   and (:tenants::int[] is null or p.invited_by = :invited_by
        or exists (select
                     from retoma.person_roles r
                    where r.person = p.id and (r.tenant is null or r.tenant = any(:tenants))))
 order by p.name, p.id;

-- name: update_profile
with changed as (
  update retoma.people
     set name = :name, language = :language, time_zone = :time_zone
   where id = :person
  returning id, name
)
select retoma.rename_person(id, name)
  from changed;

-- name: set_role
select outcome, ended from retoma.set_role(:person, :tenant, :role, :from_claim);

-- name: remove_role
select retoma.remove_role(:person, :tenant) as outcome;

-- name: disable_person
select retoma.disable_person(:person) as outcome;

-- name: enable_person
update retoma.people
   set disabled_at = null
 where id = :person;

-- name: has_administrator
-- Whether somebody can log in who may do everything.
select exists (select
                 from retoma.people p
                 join retoma.person_roles r on r.person = p.id
                where r.role = 'administrator' and r.tenant is null and p.disabled_at is null) as found;

-- name: find_password_hash
-- Of a person who may log in.
select password_hash
  from retoma.people
 where id = :person and disabled_at is null;

-- name: set_password
-- Set the password, end all sessions except one, and make links that were not used invalid.
with ended as (
  delete from retoma.person_sessions
   where person = :person and digest is distinct from :kept_session::bytea
), unused as (
  update retoma.account_links
     set used_at = retoma.now()
   where person = :person and used_at is null
)
update retoma.people
   set password_hash = :password_hash, grantable = coalesce(:grantable::jsonb, grantable)
 where id = :person;

-- name: add_link
-- Add a link that works once. Earlier ones of the person stop working.
with replaced as (
  update retoma.account_links
     set used_at = retoma.now()
   where person = :person and used_at is null
)
insert into retoma.account_links (digest, person, purpose, created_by, grantable, created_at, expires_at)
values (:digest, :person, :purpose, :created_by, :grantable::jsonb, retoma.now(), retoma.now() + :valid_for::interval)
returning expires_at;

-- name: find_link
-- Return the link if it still works.
select l.person, l.purpose
  from retoma.account_links l
  join retoma.people p on p.id = l.person
 where l.digest = :digest and l.used_at is null and l.expires_at > retoma.now() and p.disabled_at is null;

-- name: use_link
-- Set the password of the link's person, who then has no sessions. Of two requests at once, only one finds the link.
with used as (
  update retoma.account_links l
     set used_at = retoma.now()
    from retoma.people p
   where l.digest = :digest and l.used_at is null and l.expires_at > retoma.now()
     and p.id = l.person and p.disabled_at is null
  returning l.person, l.grantable
), ended as (
  delete from retoma.person_sessions s
   using used
   where s.person = used.person
)
update retoma.people p
   set password_hash = :password_hash, grantable = used.grantable
  from used
 where p.id = used.person
returning p.id;
