-- name: grant_files
-- Let a tenant name these files, which are kept for a while even if nothing names them.
insert into retoma.tenant_files as f (tenant, digest, granted_at)
select :tenant, decode(g.digest, 'hex'), retoma.now()
  from unnest(:digests::text[]) as g (digest)
 order by g.digest
    on conflict (tenant, digest) do update set granted_at = excluded.granted_at
 where f.granted_at < excluded.granted_at - interval '1 hour';

-- name: list_foreign_files
-- Those of these files that a tenant may not name.
select g.digest
  from unnest(:digests::text[]) as g (digest)
 where not exists (select from retoma.tenant_files f where f.tenant = :tenant and f.digest = decode(g.digest, 'hex'))
 order by g.digest;
