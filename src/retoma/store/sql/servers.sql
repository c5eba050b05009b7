-- name: announce_server
-- This server is running. Rows of servers that ended without a word go with it.
with gone as (
  delete from retoma.servers
   where id <> :server and beat_at < retoma.now() - interval '1 hour'
)
insert into retoma.servers (id, beat_at, allow_hosts, public_url)
values (:server, retoma.now(), :allow_hosts::text[], :public_url)
    on conflict (id) do update set beat_at = excluded.beat_at;

-- name: end_server
delete from retoma.servers
 where id = :server;

-- name: list_running_servers
select allow_hosts, public_url
  from retoma.servers
 where beat_at >= retoma.now() - :heartbeat_timeout::interval
 order by id;
