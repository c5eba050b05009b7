-- Adds reviews (steps that people do), and lets work be done again in runs that are under way. Rewrites no row.

create type retoma.review_state as enum ('open', 'approved', 'sent_back', 'rejected', 'expired', 'withdrawn');

-- A job that waits for a person. It is parked, and holds neither a worker nor a slot.
create table retoma.reviews (
  id uuid primary key default gen_random_uuid(),
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  version int not null,
  tenant int not null,
  planned boolean not null,                -- by its pipeline; otherwise a step asked for help
  state retoma.review_state not null default 'open',
  reason json,                             -- why a step asked: code, message, and the result it would give
  opened_at timestamptz not null,
  due_at timestamptz,
  remind_at timestamptz,
  escalate_at timestamptz,
  expires_at timestamptz,
  assignee text,
  claimed_by text,                         -- who is looking at it, until then
  claimed_until timestamptz,
  -- The decision.
  decided_by text,
  via text,
  decided_at timestamptz,
  effective_at timestamptz,                -- until then it can be undone
  applied_at timestamptz,
  decision_key text,
  value json,                              -- what was approved, if it is not the subject as it was
  notes text,
  feedback json,
  back_to text collate "C",
  back_items text[],
  next_at timestamptz,                     -- when somebody should attend to it
  ended_at timestamptz,
  unique (run, step, item, revision),
  constraint an_end_has_a_time check ((state = 'open') = (ended_at is null)),
  constraint a_decision_has_an_author check (state not in ('approved', 'sent_back', 'rejected') or decided_by is not null)
) with (fillfactor = 70);

-- Which runs wait for people. Small, as most reviews have ended.
create index reviews_of_live_jobs on retoma.reviews (run) where applied_at is null;
create index reviews_open on retoma.reviews (opened_at, id) where state = 'open';
create index reviews_of_tenant on retoma.reviews (tenant, opened_at);
create index reviews_due on retoma.reviews (next_at) where next_at is not null;

insert into retoma.moves (of, before, after)
select 'review', before, after
  from (values
    ('open', '{approved, sent_back, rejected, expired, withdrawn}'::text[]),
    ('approved', '{open, withdrawn}'),
    ('sent_back', '{open, withdrawn}'),
    ('rejected', '{open, withdrawn}')
  ) as moves (before, afters), unnest(afters) as after;

-- What was decided can be undone, or be overtaken by another act, until it takes effect.
create trigger only_permitted_moves
  after update of state on retoma.reviews for each row
  when (old.state <> new.state and not case old.state
    when 'open' then true
    when 'approved' then new.state in ('open', 'withdrawn') and old.applied_at is null
    when 'sent_back' then new.state in ('open', 'withdrawn') and old.applied_at is null
    when 'rejected' then new.state in ('open', 'withdrawn') and old.applied_at is null
    else false end)
  execute function retoma.refuse_move('review');

insert into retoma.moves (of, before, after) values ('job', 'waiting', 'parked');

drop trigger only_permitted_moves on retoma.jobs;
create trigger only_permitted_moves
  after update of state on retoma.jobs for each row
  when (old.state <> new.state and not case old.state
    when 'running' then new.state <> 'waiting'
    when 'ready' then new.state in ('running', 'cancelled')
    when 'waiting' then new.state in ('ready', 'parked', 'skipped', 'cancelled')
    when 'parked' then new.state not in ('waiting', 'running')
    else false end)
  execute function retoma.refuse_move('job');

-- How a review is held, as the application last said: null for a step that no person does.
alter table retoma.steps
  add review json,
  drop constraint on_failure_is_known,
  add constraint on_failure_is_known check (on_failure in ('stop', 'continue', 'review'));

-- Its end sets nothing in motion: a person asked for this step and no more.
alter table retoma.jobs add alone boolean not null default false;

-- Every job of a revision that was to be made anew. One that is no target keeps its former result if what it is made of is
-- the same.
alter table retoma.remakes
  add target boolean not null default true,
  add feedback json,                       -- what a person said to it
  add reused_from int;                     -- the revision whose result it kept

alter table retoma.runs add forked_from uuid;  -- its rows of revision 1 are that run's

alter table retoma.events drop constraint kind_is_known;
alter table retoma.events add constraint kind_is_known
  check (kind in ('start', 'result', 'failure', 'retry', 'review', 'act', 'end', 'stuck', 'resume'));

-- They give or take one more fact now.
drop function if exists retoma.parameters_of(uuid, text, text, int, json);
drop function if exists retoma.remake(timestamptz, retoma.runs, retoma.handle[], retoma.handle[]);
drop function if exists retoma.edit_result(uuid, int, text, text, text, json);

-- What an application has learnt for a tenant, to be found again by its words.
create table retoma.facts (
  app text not null,
  tenant int not null,
  language text not null,
  text text not null,
  digest bytea not null,
  source json not null,
  confidence real not null,
  search tsvector not null,
  run uuid not null,                       -- which told it first
  created_at timestamptz not null,
  primary key (app, tenant, language, digest),
  constraint confidence_is_a_share check (confidence between 0 and 1)
);

create index facts_by_word on retoma.facts using gin (search);

-- Deciding has a scope of its own.
alter table retoma.api_keys
  drop constraint scopes_are_known,
  add constraint scopes_are_known check (scopes <@ array[
    'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'reviews:write', 'admin']);
