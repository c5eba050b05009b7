-- Adds which roles the password of a person is good for, and the numbers of the people who decide, claim and write entries.
-- Reviews of earlier releases keep the names alone. Whoever is setting up a second factor starts again.

-- The highest roles that whoever handed out the link or password could give: [{"tenant": 3, "role": "administrator"}], with the
-- tenant null for all. A role beyond them ends the password.
alter table retoma.account_links add column grantable jsonb not null default '[]';
alter table retoma.people add column grantable jsonb not null default '[]';
alter table retoma.people add column invited_by text;            -- who created the account: kind and number of the actor

-- A secret is stored only once a code has confirmed it.
update retoma.people set totp_secret = null where totp_confirmed_at is null;
alter table retoma.people add constraint a_totp_secret_is_confirmed check ((totp_secret is null) = (totp_confirmed_at is null));

-- In which tenants the person of an entry had a role then: their administrators see it.
alter table retoma.audit_log add column person_tenants int[];
create index audit_log_by_tenants_of_the_person on retoma.audit_log using gin (person_tenants) where person_tenants is not null;

-- Who decided or is reviewing, if it is a person with an account. `decided_by` and `claimed_by` are the names.
alter table retoma.reviews add column decided_person int;
alter table retoma.reviews add column claimed_person int;

-- Replaced by functions that take the address of the browser.
drop function if exists retoma.sign_on(text, text, text, boolean, text, boolean, int[], text[]);
drop function if exists retoma.set_claimed_roles(int, int[], text[]);
