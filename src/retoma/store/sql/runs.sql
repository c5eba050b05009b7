-- name: show_run
select r.id, t.name as tenant, v.pipeline, r.version, r.state::text as state, r.revision,
       case when :with_input::boolean then r.input::text end as input, r.created_at, r.run_at, r.ended_at, r.forked_from
  from retoma.runs r
  join retoma.tenants t on t.id = r.tenant
  join retoma.versions v on v.id = r.version
 where r.id = :run and (:tenant::int is null or r.tenant = :tenant);

-- name: input_of
select input::text as input
  from retoma.runs
 where id = :run;

-- name: earlier_work
-- The failures and the running time of other steps on one item in this round, with the retries that the run allows.
select coalesce(sum(j.failures), 0)::int as failures,
       coalesce(sum(j.spent_ms + extract(epoch from j.ended_at - j.started_at) * 1000), 0)::bigint as milliseconds,
       (select r.retries from retoma.runs r where r.id = :run) as most_retries
  from retoma.jobs j
 where j.run = :run and j.step = any (:steps) and j.item = :item and j.revision = :revision;

-- name: list_runs
-- Newest first, after the one that ended the page before. `by` chooses the index: of all runs, of those that are not over, of those
-- that are over and have not completed, or of each version of the pipeline.
with found as (
    (select r.*
      from retoma.runs r
     where :by = 'run'
       and (:tenant::int is null or r.tenant = :tenant)
       and (:states::text[] is null or r.state::text = any (:states))
       and (:before::uuid is null or r.id < :before)
       and (:first::uuid is null or r.id >= :first)
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.runs r
      join retoma.versions v on v.id = r.version
     where :by = 'open' and r.ended_at is null
       and (:pipeline::text is null or v.pipeline = :pipeline)
       and (:tenant::int is null or r.tenant = :tenant)
       and (:states::text[] is null or r.state::text = any (:states))
       and (:before::uuid is null or r.id < :before)
       and (:first::uuid is null or r.id >= :first)
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.runs r
      join retoma.versions v on v.id = r.version
     where :by = 'wrong' and r.ended_at is not null and r.state <> 'completed'
       and (:pipeline::text is null or v.pipeline = :pipeline)
       and (:tenant::int is null or r.tenant = :tenant)
       and (:states::text[] is null or r.state::text = any (:states))
       and (:before::uuid is null or r.id < :before)
       and (:first::uuid is null or r.id >= :first)
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.versions v,
           lateral (select r.*
                      from retoma.runs r
                     where r.version = v.id
                       and (:tenant::int is null or r.tenant = :tenant)
                       and (:states::text[] is null or r.state::text = any (:states))
                       and (:before::uuid is null or r.id < :before)
                       and (:first::uuid is null or r.id >= :first)
                     order by r.id desc
                     limit :limit) r
     where :by = 'pipeline' and v.pipeline = :pipeline
     order by r.id desc
     limit :limit)
)
select r.id, t.name as tenant, v.pipeline, r.version, r.state::text as state, r.revision,
       case when :with_input::boolean then r.input::text end as input, r.created_at, r.run_at, r.ended_at, r.forked_from
  from found r
  join retoma.tenants t on t.id = r.tenant
  join retoma.versions v on v.id = r.version
 order by r.id desc;

-- name: states_of
-- Which of these runs are over, and how.
select id, state::text as state
  from retoma.runs
 where id = any (:runs::uuid[]) and ended_at is not null;

-- name: began
-- When work began in these runs, where it has.
-- Between two attempts the first is only known by how long attempts took; it is never before the run.
select r.id, greatest(retoma.began_at(r), r.created_at) as began_at
  from retoma.runs r
 where r.id = any (:runs::uuid[]) and retoma.began_at(r) is not null;

-- name: jobs_of_run
-- The job of every step and item, as they are now or stood through a revision.
select j.step, j.item, j.revision, j.state::text as state, j.position, j.attempt, j.deaths, j.queue, j.code,
       j.created_at, j.ready_at, j.started_at, j.ended_at, j.waiting_on, j.output::text as output
  from retoma.stood(:run, coalesce(:through::int, retoma.latest())) j
 order by j.step, j.item;

-- name: steps_of_run
-- Progress of a run: how many jobs of each step are in which state.
select s.step, s.each, s.queue, coalesce(c.state, 'not made') as state, coalesce(c.jobs, 0) as jobs, c.created_at, c.started_at, c.ended_at
  from retoma.runs r
  join retoma.steps s on s.version = r.version
  left join (
    select step, state::text as state, count(*) as jobs, min(created_at) as created_at, min(started_at) as started_at, max(ended_at) as ended_at
      from retoma.standing(:run) j
     group by 1, 2) c on c.step = s.step
 where r.id = :run;

-- name: results_of_run
-- The results of a run, as they are now or stood through a revision.
select c.step, c.item, s.each, c.output::text as output
  from retoma.stood(:run, coalesce(:through::int, retoma.latest())) c
  join retoma.steps s on s.version = c.version and s.step = c.step
 where c.state = 'succeeded' and not s.hidden
 order by s.place, c.position;

-- name: size_of_results
-- How many bytes the same have as JSON.
select coalesce(sum(octet_length(c.output::text)), 0) as bytes
  from retoma.stood(:run, :through) c
  join retoma.steps s on s.version = c.version and s.step = c.step
 where c.state = 'succeeded' and not s.hidden;

-- name: events_of_run
select e.id, e.at, e.revision, e.attempt, e.worker, e.kind, e.step, e.item, e.data::text as data
  from retoma.events e
 where e.run = :run and e.id > :after and (:kinds::text[] is null or e.kind = any (:kinds))
 order by e.id
 limit :limit;

-- name: last_errors_of_run
-- The newest failure or retry of each job that has one, of all or through a revision: first those of jobs that have
-- failed, then those of jobs that were tried again, in the order of their names.
select e.step, e.item, e.attempt, last.retried,
       case when :with_stack::boolean then e.data::text else (e.data::jsonb - 'stack')::text end as data
  from (select told.id, told.step, told.item, coalesce(current.state not in ('failed', 'quarantined'), false) as retried
          from (select distinct on (n.step, n.item) n.id, n.step, n.item
                  from retoma.events n
                 where n.run = :run and n.kind in ('failure', 'retry') and n.revision <= coalesce(:through::int, retoma.latest())
                 order by n.step, n.item, n.id desc) told
          left join lateral (select j.state
                               from retoma.jobs j
                              where j.run = :run and j.step = told.step and j.item = told.item
                                and j.revision <= coalesce(:through::int, retoma.latest())
                              order by j.revision desc
                              limit 1) current on true
         order by retried, told.step, told.item
         limit :limit::int) last
  join retoma.events e on e.run = :run and e.id = last.id
 order by last.retried, last.step, last.item;

-- name: count_errors_of_run
-- How many jobs have failed, how many others have had a failure or a retry, and how many attempts were retried.
select count(*) filter (where not told.retried) as failed,
       count(*) filter (where told.retried) as recovered,
       coalesce(sum(told.retries), 0)::int as retried_attempts
  from (select coalesce(current.state not in ('failed', 'quarantined'), false) as retried, had.retries
          from (select n.step, n.item, count(*) filter (where n.kind = 'retry') as retries
                  from retoma.events n
                 where n.run = :run and n.kind in ('failure', 'retry')
                 group by n.step, n.item) had
          left join lateral (select j.state
                               from retoma.jobs j
                              where j.run = :run and j.step = had.step and j.item = had.item
                              order by j.revision desc
                              limit 1) current on true) told;

-- name: last_failure_of_run
-- What failed last, through a revision.
select e.step, e.item, e.data ->> 'code' as code, e.data ->> 'message' as message
  from retoma.events e
 where e.run = :run and e.kind = 'failure' and e.revision <= :through
 order by e.id desc
 limit 1;

-- name: jobs_of_step
-- The current jobs of a step in the order of its items, after that of the page before.
select c.step, c.item, c.revision, c.state::text as state, c.position, c.attempt, c.deaths, c.queue, c.code,
       c.created_at, c.ready_at, c.started_at, c.ended_at, c.waiting_on, c.output::text as output
  from (select distinct on (j.item) j.*
          from retoma.jobs j
         where j.run = :run and j.step = :step
           and j.revision >= (select retoma.list_revision(:run, r.version, :step, retoma.latest()) from retoma.runs r where r.id = :run)
         order by j.item, j.revision desc) c
 where (:states::text[] is null or c.state::text = any (:states))
   and (:item::text is null or c.item = :item)
   and c.position > :after
 order by c.position
 limit :limit;

-- name: events_of_job
-- What happened to one job, the newest first.
select e.id, e.at, e.revision, e.attempt, e.worker, e.kind, e.step, e.item, e.data::text as data
  from retoma.events e
 where e.run = :run and e.step = :step and coalesce(e.item, '') = :item
 order by e.id desc
 limit :limit;

-- name: data_with_text
-- What the data of a run says where it has this text: its input, and its jobs' values and results.
select r.input::text as said from retoma.runs r where r.id = :run and position(:text in r.input::text) > 0
union all
select j.input::text from retoma.jobs j where j.run = :run and position(:text in j.input::text) > 0
union all
select j.output::text from retoma.jobs j where j.run = :run and position(:text in j.output::text) > 0
limit :limit;

-- name: results_with_text
-- The same of the results of steps that have one job.
select j.output::text as said
  from retoma.jobs j
 where j.run = :run and j.item = '' and position(:text in j.output::text) > 0
 order by j.revision desc, j.ended_at desc
 limit :limit;

-- name: tries_of_run
-- Tries that gave no result, in their order: of the steps that have one job, and of one item.
select e.step, e.item, e.began_at, e.at as ended_at, e.again_at
  from retoma.events e
 where e.run = :run and e.kind in ('failure', 'retry') and e.began_at is not null
   and (e.item = '' or e.step = :step and e.item = :item)
 order by e.id
 limit :limit;

-- name: started_by
-- The run that a key has started.
select run
  from retoma.start_keys
 where tenant = :tenant and pipeline = :pipeline and key = :key;

-- name: runs_between
-- The newest runs whose ids are in this range.
select id
  from retoma.runs
 where id between :first and :last
 order by id desc
 limit :limit;
