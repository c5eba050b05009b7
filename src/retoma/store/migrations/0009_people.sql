-- Adds accounts of people, their roles and sessions, the audit log, and who a review is assigned to.
-- Existing data does not change. Browsers log in again, as a person: create one with `retoma people create`.

-- A person who uses the pages. Never deleted, only disabled: history keeps the name.
create table retoma.people (
  id int generated always as identity primary key,
  name text not null,
  email text collate "C" not null,         -- in lower case
  password_hash text,                      -- argon2id; null: none yet, or single sign-on only
  language text,                           -- null: as the browser asks
  time_zone text,                          -- null: as the browser reports
  oidc_issuer text,
  oidc_subject text,
  totp_secret bytea,
  totp_confirmed_at timestamptz,
  totp_last_step bigint,                   -- of the last code, which cannot be used twice
  preferences json not null default '{}',  -- of the pages
  created_at timestamptz not null,
  disabled_at timestamptz,
  constraint email_is_lower_case check (email = lower(email)),
  constraint an_oidc_subject_has_an_issuer check ((oidc_issuer is null) = (oidc_subject is null))
);

create unique index one_person_per_email on retoma.people (email);
create unique index one_person_per_oidc_subject on retoma.people (oidc_issuer, oidc_subject);

-- What a person may do, in one tenant or in all.
create table retoma.person_roles (
  person int not null references retoma.people,
  tenant int references retoma.tenants,    -- null: all tenants
  role text not null,
  from_claim boolean not null default false,  -- given by single sign-on, which may also take it away
  constraint role_is_known check (role in ('viewer', 'reviewer', 'operator', 'administrator'))
);

create unique index one_role_per_person_and_tenant on retoma.person_roles (person, tenant) nulls not distinct;

-- Invitations and password resets. Each works once, until it expires.
create table retoma.account_links (
  digest bytea primary key,
  person int not null references retoma.people,
  purpose text not null,
  created_by text not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  used_at timestamptz,
  constraint purpose_is_known check (purpose in ('invite', 'reset'))
);

create index account_links_by_person on retoma.account_links (person);

-- Logged-in browsers. Only the digests of their tokens are stored.
create table retoma.person_sessions (
  id int generated always as identity primary key,
  digest bytea not null unique,
  person int not null references retoma.people,
  address text,
  user_agent text,
  created_at timestamptz not null,
  used_at timestamptz not null
);

create index sessions_by_person on retoma.person_sessions (person);

-- Who did what to which object. Rows are only added.
create table retoma.audit_log (
  id bigint generated always as identity primary key,
  at timestamptz not null,
  actor_kind text not null,
  actor_id text,
  actor_name text not null,
  address text,
  action text not null,
  object_kind text not null,
  object_id text,
  tenant int,                              -- null: of no single tenant
  before json,
  after json
);

-- What a person has typed into a review and not sent.
create table retoma.review_drafts (
  review uuid not null,
  person text not null,
  draft json not null,
  saved_at timestamptz not null,
  primary key (review, person)
);

-- Whom a review is assigned to. `assignee`, a free text, is that of reviews of earlier releases.
alter table retoma.reviews add column assigned_person int;
alter table retoma.reviews add column assigned_role text;
alter table retoma.reviews add constraint assigned_to_a_person_or_a_role
  check (num_nonnulls(assigned_person, assigned_role) <= 1) not valid;

-- A key may manage people.
alter table retoma.api_keys drop constraint scopes_are_known;
alter table retoma.api_keys add constraint scopes_are_known check (scopes <@ array[
  'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'reviews:write',
  'people:write', 'admin']);
