-- name: replace_allowed_hosts
with removed as (
  delete from retoma.allowed_hosts where host <> all (:hosts::text[])
)
insert into retoma.allowed_hosts (host)
select unnest(:hosts::text[])
    on conflict do nothing;

-- name: list_allowed_hosts
select host
  from retoma.allowed_hosts
 order by host;
