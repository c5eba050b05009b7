-- Adds which tenants may name which files in their data. Reads the inputs and results of all runs once, so it takes a while on a large
-- database; nothing waits for it except starts of the new release.

create table retoma.tenant_files (
  tenant int not null references retoma.tenants,
  digest bytea not null,                   -- the SHA-256 of the content
  primary key (tenant, digest),
  constraint digest_is_sha256 check (length(digest) = 32)
);

insert into retoma.tenant_files (tenant, digest)
select r.tenant, decode(f.found[1], 'hex')
  from retoma.runs r, regexp_matches(r.input::text, '"file": ?"([0-9a-f]{64})"', 'g') as f (found)
 where position('"file"' in r.input::text) > 0
union
select j.tenant, decode(f.found[1], 'hex')
  from retoma.jobs j, regexp_matches(j.output::text, '"file": ?"([0-9a-f]{64})"', 'g') as f (found)
 where position('"file"' in j.output::text) > 0;
