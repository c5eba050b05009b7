-- name: add_session
-- Add a session, and delete those that have ended.
with over as (
  delete from retoma.person_sessions
   where created_at <= retoma.now() - :longest::interval or used_at <= retoma.now() - :idle::interval
)
insert into retoma.person_sessions (digest, person, address, user_agent, created_at, used_at)
values (:digest, :person, :address, :user_agent, retoma.now(), retoma.now());

-- name: use_session
-- Return the person whose session is live, and record its use at most once a minute.
with found as (
  select s.id, s.person, s.used_at
    from retoma.person_sessions s
    join retoma.people p on p.id = s.person
   where s.digest = :digest and p.disabled_at is null
     and s.created_at > retoma.now() - :longest::interval and s.used_at > retoma.now() - :idle::interval
), noted as (
  update retoma.person_sessions s
     set used_at = retoma.now()
    from found f
   where s.id = f.id and f.used_at < retoma.now() - interval '1 minute'
)
select person
  from found;

-- name: list_live_sessions
-- Return the digests of these whose sessions are live, with their persons.
select s.digest, s.person
  from retoma.person_sessions s
  join retoma.people p on p.id = s.person
 where s.digest = any(:digests::bytea[]) and p.disabled_at is null
   and s.created_at > retoma.now() - :longest::interval and s.used_at > retoma.now() - :idle::interval;

-- name: list_sessions_of
-- Of one person, the last used first.
select id, digest, address, user_agent, created_at, used_at
  from retoma.person_sessions
 where person = :person
   and created_at > retoma.now() - :longest::interval and used_at > retoma.now() - :idle::interval
 order by used_at desc, id desc;

-- name: end_session
delete from retoma.person_sessions
 where digest = :digest;

-- name: end_sessions_of
-- End one session of a person, or all except one.
delete from retoma.person_sessions
 where person = :person
   and (:id::int is null or id = :id)
   and digest is distinct from :kept::bytea
returning id;
