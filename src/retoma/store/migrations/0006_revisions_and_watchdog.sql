-- Lets people have work done again in runs that are over, and watches over the progress of those that are not.

-- Only an act of a person opens a run that is over.
insert into retoma.moves (of, before, after)
values ('run', 'completed', 'running'), ('run', 'completed_with_errors', 'running'), ('run', 'failed', 'running');

drop trigger only_permitted_moves on retoma.runs;
create trigger only_permitted_moves
  after update of state on retoma.runs for each row
  when (old.state <> new.state and not case
    when old.state in ('running', 'paused', 'needs_review', 'stuck') then new.state <> 'pending'
    when old.state = 'pending' then new.state in ('running', 'cancelling', 'cancelled')
    when old.state = 'cancelling' then new.state = 'cancelled'
    when old.state in ('completed', 'completed_with_errors', 'failed') then new.state = 'running'
    else false end)
  execute function retoma.refuse_move('run');

-- A job that a person has seen to: who, in place of a worker.
alter table retoma.jobs add author text;

-- Jobs of a revision that are made when what they need has ended. Until then their former rows do not count.
create table retoma.remakes (
  run uuid not null,
  revision int not null,
  step text collate "C" not null,
  item text collate "C" not null,
  primary key (run, revision, step, item)
);

alter table retoma.events drop constraint kind_is_known;
alter table retoma.events add constraint kind_is_known
  check (kind in ('start', 'result', 'failure', 'retry', 'act', 'end', 'stuck', 'resume'));

alter table retoma.versions
  add stuck_after interval not null default '5 minutes',  -- without progress
  add resumes int not null default 3;                     -- by itself, without progress

-- How long one attempt may take, as the application last said.
alter table retoma.steps add timeout interval not null default '10 minutes';

alter table retoma.runs
  add watch_at timestamptz not null default 'infinity',   -- when somebody should look whether it progresses
  add resumes int,                                        -- in place of its version's
  add deadline interval,                                  -- after its beginning, as its start said
  add deadline_at timestamptz;                            -- when it fails if it is not over

create index runs_watched on retoma.runs (watch_at) where ended_at is null;

-- Runs that did not progress when they should have. A row goes when the run progresses or ends.
create table retoma.stuck (
  run uuid primary key,
  since timestamptz not null,
  cause text not null,
  data json not null,
  seen bigint not null,                    -- the last event of progress
  resumes int not null default 0           -- since that
);

-- They give or take one more fact now.
drop function if exists retoma.promote(int);
drop function if exists retoma.start_runs(uuid[], int[], int[], json[], text[], bytea[], timestamptz[], bigint[], json[], boolean);
