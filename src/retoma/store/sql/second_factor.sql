-- name: find_totp
-- The secret of a person who may log in.
select totp_secret as secret
  from retoma.people
 where id = :person and disabled_at is null;

-- name: confirm_totp
-- Set the secret that the code of a time step has confirmed, and the recovery codes. Returns nothing if there is one already.
with confirmed as (
  update retoma.people
     set totp_secret = :secret, totp_confirmed_at = retoma.now(), totp_last_step = :step
   where id = :person and totp_confirmed_at is null and disabled_at is null
  returning id
)
insert into retoma.recovery_codes (person, digest, created_at)
select c.id, d.digest, retoma.now()
  from confirmed c
 cross join unnest(:digests::bytea[]) as d (digest)
returning person;

-- name: use_totp_step
-- Accept the code of a time step once, so a person who saw the code cannot reuse it.
update retoma.people
   set totp_last_step = :step
 where id = :person and totp_confirmed_at is not null and totp_last_step < :step
returning id;

-- name: use_recovery_code
update retoma.recovery_codes
   set used_at = retoma.now()
 where person = :person and digest = :digest and used_at is null
returning person;

-- name: count_recovery_codes
-- How many are left.
select count(*)::int as codes
  from retoma.recovery_codes
 where person = :person and used_at is null;

-- name: renew_recovery_codes
-- Replace the recovery codes of a person who has a second factor.
with dropped as (
  delete from retoma.recovery_codes
   where person = :person and digest <> all (:digests::bytea[])
)
insert into retoma.recovery_codes (person, digest, created_at)
select p.id, d.digest, retoma.now()
  from retoma.people p
 cross join unnest(:digests::bytea[]) as d (digest)
 where p.id = :person and p.totp_confirmed_at is not null
    on conflict do nothing
returning person;

-- name: remove_second_factor
with dropped as (
  delete from retoma.recovery_codes
   where person = :person
)
update retoma.people
   set totp_secret = null, totp_confirmed_at = null, totp_last_step = null
 where id = :person and totp_secret is not null
returning id;
