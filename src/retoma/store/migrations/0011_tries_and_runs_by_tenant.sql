-- Adds to events when a try began, and two indexes by which lists of runs are made: of a tenant, and of what went wrong.
-- On a large table of runs this takes a while, in which none can start.

alter table retoma.events
  add began_at timestamptz,                -- of a try that gave no result
  add again_at timestamptz;                -- when the next one may begin, if it must wait

create index runs_of_tenant on retoma.runs (tenant, id);
create index runs_gone_wrong on retoma.runs (id) where ended_at is not null and state <> 'completed';
