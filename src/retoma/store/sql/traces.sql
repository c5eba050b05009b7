-- name: take_ended_runs
select run, at, revision, state, first_revision
  from retoma.take_ended_runs(:limit);

-- name: describe_run
select r.run_at, v.pipeline, t.name as tenant, r.forked_from,
       (r.parent).run as parent, (r.parent).revision as parent_revision
  from retoma.runs r
  join retoma.versions v on v.id = r.version
  join retoma.tenants t on t.id = r.tenant
 where r.id = :run;

-- name: list_revisions
-- When each of these revisions of a run began.
select revision, min(at) as began_at
  from retoma.events
 where run = :run and revision between :first and :last
 group by 1
 order by 1;

-- name: list_reviews
select step, item, revision, opened_at, ended_at, state::text as state, planned
  from retoma.reviews
 where run = :run and revision between :first and :last and ended_at is not null
 order by opened_at, id;

-- name: list_lost_attempts
-- Attempts whose worker did not live to report them.
select step, item, revision, attempt, worker, (data ->> 'fence')::int as fence, data ->> 'code' as code,
       data ->> 'message' as message, started_at, at
  from retoma.events
 where run = :run and revision between :first and :last and kind in ('retry', 'failure') and data ->> 'fence' is not null
 order by id;
