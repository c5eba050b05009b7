-- name: add_session
-- Add a session, and delete those that have ended.
with over as (
  delete from retoma.sessions
   where created_at <= retoma.now() - :longest::interval or used_at <= retoma.now() - :idle::interval
)
insert into retoma.sessions (digest, password, created_at, used_at)
values (:digest, :password, retoma.now(), retoma.now());

-- name: use_session
-- Return the session if it is live, and record its use at most once a minute.
with found as (
  select digest, used_at
    from retoma.sessions
   where digest = :digest and password = :password
     and created_at > retoma.now() - :longest::interval and used_at > retoma.now() - :idle::interval
), noted as (
  update retoma.sessions s
     set used_at = retoma.now()
    from found f
   where s.digest = f.digest and f.used_at < retoma.now() - interval '1 minute'
)
select digest
  from found;

-- name: list_live_sessions
-- Return those of these digests whose sessions are live.
select digest
  from retoma.sessions
 where digest = any(:digests::bytea[]) and password = :password
   and created_at > retoma.now() - :longest::interval and used_at > retoma.now() - :idle::interval;

-- name: end_session
delete from retoma.sessions
 where digest = :digest;
