-- name: send_server_heartbeat
-- Record a server's heartbeat, and delete servers without one for an hour.
with gone as (
  delete from retoma.servers
   where id <> :server and heartbeat_at < retoma.now() - interval '1 hour'
)
insert into retoma.servers (id, heartbeat_at, allow_hosts, public_url)
values (:server, retoma.now(), :allow_hosts::text[], :public_url)
    on conflict (id) do update set heartbeat_at = excluded.heartbeat_at;

-- name: deregister_server
delete from retoma.servers
 where id = :server;

-- name: list_running_servers
select allow_hosts, public_url
  from retoma.servers
 where heartbeat_at >= retoma.now() - :heartbeat_timeout::interval
 order by id;
