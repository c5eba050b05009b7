-- Adds the sessions of people who logged in to the pages. Only digests of their tokens are kept.

create table retoma.sessions (
  digest bytea primary key,
  password bytea not null,                 -- the digest of the password's hash: another password ends them all
  created_at timestamptz not null,
  used_at timestamptz not null             -- written at most once a minute
);
