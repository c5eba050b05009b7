-- Adds the parent of a run: the job that started it as a child and waits for its end. Existing runs have none.

alter table retoma.runs add column parent retoma.job_key;

create index runs_by_parent on retoma.runs (((parent).run), id) where parent is not null;

-- External work without an interval is not polled until something makes it due: the end of a child run.
alter table retoma.external_work alter column poll_interval drop not null;
