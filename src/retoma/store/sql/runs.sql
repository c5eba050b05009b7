-- name: get_run
select r.id, t.name as tenant, v.pipeline, r.version, r.state::text as state, r.revision,
       case when :with_input::boolean then r.input::text end as input, r.created_at, r.run_at, r.ended_at, r.title,
       (select f.id from retoma.runs f where f.id = r.forked_from) as forked_from,
       (select p.id from retoma.runs p where p.id = (r.parent).run) as parent
  from retoma.runs r
  join retoma.tenants t on t.id = r.tenant
  join retoma.versions v on v.id = r.version
 where r.id = :run and (:tenants::int[] is null or r.tenant = any (:tenants));

-- name: get_outcome
-- The state of a run and, once it has completed, the results of its last steps.
select r.state::text as state,
       case when r.state = 'completed' then (
         select json_agg(json_build_object('step', c.step, 'item', c.item, 'each', s.each, 'output', c.output)
                         order by s.position, c.position)
           from retoma.jobs_at_revision(r.id, retoma.max_revision()) c
           join retoma.steps s on s.version = c.version and s.step = c.step
          where c.state = 'succeeded' and c.step in (select json_array_elements_text(v.graph -> 'sinks'))) end::text as results
  from retoma.runs r
  join retoma.versions v on v.id = r.version
 where r.id = :run;

-- name: get_tenant
select tenant
  from retoma.runs
 where id = :run;

-- name: get_input
select input::text as input
  from retoma.runs
 where id = :run;

-- name: get_earlier_work
-- The failures and the running time of other steps on one item in this revision.
select coalesce(sum(j.failures), 0)::int as failures,
       coalesce(sum(j.spent_ms + extract(epoch from j.ended_at - j.started_at) * 1000), 0)::bigint as milliseconds
  from retoma.jobs j
 where j.run = :run and j.step = any (:steps) and j.item = :item and j.revision = :revision;

-- name: list_runs
-- Newest first, after the last one of the previous page. `by` chooses the index: of all runs, of open runs, of ended runs that
-- have not completed, of each version of the pipelines, of the child runs of one run, the newest `depth` runs, whose titles are
-- searched, or the words of titles.
with found as (
    (select r.*
      from retoma.runs r
     where :by = 'run'
       and retoma.matches_filter(r, :tenant, :states, :before, :first) and (:tenants::int[] is null or r.tenant = any (:tenants))
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.runs r
      join retoma.versions v on v.id = r.version
     where :by = 'open' and r.ended_at is null
       and (:pipelines::text[] is null or v.pipeline = any (:pipelines))
       and retoma.matches_filter(r, :tenant, :states, :before, :first) and (:tenants::int[] is null or r.tenant = any (:tenants))
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.runs r
      join retoma.versions v on v.id = r.version
     where :by = 'not completed' and r.ended_at is not null and r.state <> 'completed'
       and (:pipelines::text[] is null or v.pipeline = any (:pipelines))
       and retoma.matches_filter(r, :tenant, :states, :before, :first) and (:tenants::int[] is null or r.tenant = any (:tenants))
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.versions v,
           lateral (select r.*
                      from retoma.runs r
                     where r.version = v.id
                       and retoma.matches_filter(r, :tenant, :states, :before, :first) and (:tenants::int[] is null or r.tenant = any (:tenants))
                     order by r.id desc
                     limit :limit) r
     where :by = 'pipeline' and v.pipeline = any (:pipelines)
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.runs r
      join retoma.versions v on v.id = r.version
     where :by = 'parent' and r.parent is not null and (r.parent).run = :parent
       and (:pipelines::text[] is null or v.pipeline = any (:pipelines))
       and retoma.matches_filter(r, :tenant, :states, :before, :first) and (:tenants::int[] is null or r.tenant = any (:tenants))
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from ((select n.id, n.title from retoma.runs n
              where :by = 'title' and :tenant::int is null and (:before::uuid is null or n.id < :before)
                and (:tenants is null or n.tenant = any (:tenants))
              order by n.id desc
              limit :depth)
            union all
            (select n.id, n.title from retoma.runs n
              where :by = 'title' and n.tenant = :tenant and (:before::uuid is null or n.id < :before)
              order by n.id desc
              limit :depth)) s
      join retoma.runs r on r.id = s.id
      join retoma.versions v on v.id = r.version
     where position(lower(:title) in lower(s.title)) > 0
       and (:pipelines::text[] is null or v.pipeline = any (:pipelines))
       and (:parent::uuid is null or (r.parent).run = :parent)
       and retoma.matches_filter(r, :tenant, :states, :before, :first) and (:tenants::int[] is null or r.tenant = any (:tenants))
     order by r.id desc
     limit :limit)
     union all
    (select r.*
      from retoma.list_runs_by_title(:title, :tenant, :tenants, :pipelines, :states, :parent, :before, :first, :limit) r
     where :by = 'title words')
)
select r.id, t.name as tenant, v.pipeline, r.version, r.state::text as state, r.revision,
       case when :with_input::boolean then r.input::text end as input, r.created_at, r.run_at, r.ended_at, r.title,
       (select f.id from retoma.runs f where f.id = r.forked_from) as forked_from,
       (select p.id from retoma.runs p where p.id = (r.parent).run) as parent
  from found r
  join retoma.tenants t on t.id = r.tenant
  join retoma.versions v on v.id = r.version
 order by r.id desc;

-- name: count_children
-- How many child runs of a run are in which state.
select r.state::text as state, count(*) as runs
  from retoma.runs r
 where r.parent is not null and (r.parent).run = :run and (:tenants::int[] is null or r.tenant = any (:tenants))
 group by 1;

-- name: list_ancestors
-- The run that started a run as its child, the one that started that, and so on.
with recursive ancestor as (
  select (r.parent).run as id, 1 as depth
    from retoma.runs r
   where r.id = :run and r.parent is not null
  union all
  select (r.parent).run, a.depth + 1
    from ancestor a
    join retoma.runs r on r.id = a.id and r.parent is not null
   where a.depth < :limit
)
select a.id
  from ancestor a
  join retoma.runs r on r.id = a.id
 order by a.depth;

-- name: get_start_times
-- When the work of these runs started, where it has. Between two attempts, the first start is only known by how long attempts
-- took; it is never before the run.
select r.id, greatest(w.started_at, r.created_at) as started_at
  from retoma.runs r
 cross join lateral retoma.find_work_start(r.id, r.version) w
 where r.id = any (:runs::uuid[]) and (:tenants::int[] is null or r.tenant = any (:tenants)) and w.started_at is not null;

-- name: list_jobs
-- The job of every step and item, as it is now or as of a revision.
select j.step, j.item, j.revision, j.state::text as state, j.position, j.attempt, j.worker_deaths, j.queue, j.code,
       j.created_at, j.ready_at, j.started_at, j.ended_at, j.waiting_on, j.output::text as output
  from retoma.jobs_at_revision(:run, coalesce(:through::int, retoma.max_revision())) j
 order by j.step, j.item;

-- name: count_jobs_by_step
-- The progress of a run: how many jobs of each step are in which state, by revision. A job whose external work has ended started
-- when the attempt did that submitted it.
select s.step, s.each, s.queue, c.state, c.revision, coalesce(c.jobs, 0) as jobs, c.created_at, c.started_at, c.ended_at
  from retoma.runs r
  join retoma.steps s on s.version = r.version
  left join (
    select j.step, j.state::text as state, j.revision, count(*) as jobs, min(j.created_at) as created_at,
           least(min(j.started_at), min(o.started_at)) as started_at, max(j.ended_at) as ended_at
      from retoma.current_jobs(:run) j
      left join retoma.external_work o on o.run = :run and o.step = j.step and o.item = j.item and o.revision = j.revision
     group by 1, 2, 3) c on c.step = s.step
 where r.id = :run;

-- name: list_results
-- The results of a run, as they are now or as of a revision.
select c.step, c.item, s.each, c.output::text as output
  from retoma.jobs_at_revision(:run, coalesce(:through::int, retoma.max_revision())) c
  join retoma.steps s on s.version = c.version and s.step = c.step
 where c.state = 'succeeded' and not s.internal
 order by s.position, c.position;

-- name: measure_results
-- How many bytes the same results have as JSON.
select coalesce(sum(octet_length(c.output::text)), 0) as bytes
  from retoma.jobs_at_revision(:run, :through) c
  join retoma.steps s on s.version = c.version and s.step = c.step
 where c.state = 'succeeded' and not s.internal;

-- name: list_events
select e.id, e.at, e.revision, e.attempt, e.worker, e.kind, e.step, e.item, coalesce(p.data, e.data)::text as data
  from retoma.events e
  left join lateral retoma.add_provider(e) p on true
 where e.run = :run and e.id > :after and (:kinds::text[] is null or e.kind = any (:kinds))
 order by e.id
 limit :limit;

-- name: list_last_errors
-- The newest failure or retry of each job that has one, overall or as of a revision: first those of failed jobs, then those of
-- retried ones, in the order of their names.
select e.step, e.item, e.attempt, last.retried,
       case when :with_stack::boolean then coalesce(p.data, e.data)::text else (coalesce(p.data, e.data)::jsonb - 'stack')::text end as data
  from (select failed.id, failed.step, failed.item, coalesce(current.state not in ('failed', 'quarantined'), false) as retried
          from (select distinct on (n.step, n.item) n.id, n.step, n.item
                  from retoma.events n
                 where n.run = :run and n.kind in ('failure', 'retry') and n.revision <= coalesce(:through::int, retoma.max_revision())
                 order by n.step, n.item, n.id desc) failed
          left join lateral (select j.state
                               from retoma.jobs j
                              where j.run = :run and j.step = failed.step and j.item = failed.item
                                and j.revision <= coalesce(:through::int, retoma.max_revision())
                              order by j.revision desc
                              limit 1) current on true
         order by retried, failed.step, failed.item
         limit :limit::int) last
  join retoma.events e on e.run = :run and e.id = last.id
  left join lateral retoma.add_provider(e) p on true
 order by last.retried, last.step, last.item;

-- name: count_errors
-- How many jobs have failed, how many others had a failure or a retry, and how many attempts were retried.
select count(*) filter (where not jobs.retried) as failed,
       count(*) filter (where jobs.retried) as recovered,
       coalesce(sum(jobs.retries), 0)::int as retried_attempts
  from (select coalesce(current.state not in ('failed', 'quarantined'), false) as retried, had.retries
          from (select n.step, n.item, count(*) filter (where n.kind = 'retry') as retries
                  from retoma.events n
                 where n.run = :run and n.kind in ('failure', 'retry')
                 group by n.step, n.item) had
          left join lateral (select j.state
                               from retoma.jobs j
                              where j.run = :run and j.step = had.step and j.item = had.item
                              order by j.revision desc
                              limit 1) current on true) jobs;

-- name: get_last_failure
-- The last failure as of a revision.
select e.step, e.item, e.data ->> 'code' as code, e.data ->> 'message' as message
  from retoma.events e
 where e.run = :run and e.kind = 'failure' and e.revision <= :through
 order by e.id desc
 limit 1;

-- name: list_jobs_of_step
-- The current jobs of a step in the order of its items, after the last one of the previous page.
select c.step, c.item, c.revision, c.state::text as state, c.position, c.attempt, c.worker_deaths, c.queue, c.code,
       c.created_at, c.ready_at, c.started_at, c.ended_at, c.waiting_on, c.output::text as output
  from (select distinct on (j.item) j.*
          from retoma.jobs j
         where j.run = :run and j.step = :step
           and j.revision >= (select retoma.item_list_revision(:run, r.version, :step, retoma.max_revision()) from retoma.runs r where r.id = :run)
         order by j.item, j.revision desc) c
 where (:states::text[] is null or c.state::text = any (:states))
   and (:item::text is null or c.item = :item)
   and c.position > :after
 order by c.position
 limit :limit;

-- name: list_events_of_job
-- The events of one job, the newest first.
select e.id, e.at, e.revision, e.attempt, e.worker, e.kind, e.step, e.item, coalesce(p.data, e.data)::text as data
  from retoma.events e
  left join lateral retoma.add_provider(e) p on true
 where e.run = :run and e.step = :step and coalesce(e.item, '') = :item
 order by e.id desc
 limit :limit;

-- name: find_data_with_text
-- The data of a run that contains this text: its input, and its jobs' values and results.
select r.input::text as value from retoma.runs r where r.id = :run and position(:text in r.input::text) > 0
union all
select j.input::text from retoma.jobs j where j.run = :run and position(:text in j.input::text) > 0
union all
select j.output::text from retoma.jobs j where j.run = :run and position(:text in j.output::text) > 0
limit :limit;

-- name: find_results_with_text
-- The same for the results of steps with a single job.
select j.output::text as value
  from retoma.jobs j
 where j.run = :run and j.item = '' and position(:text in j.output::text) > 0
 order by j.revision desc, j.ended_at desc
 limit :limit;

-- name: list_failed_attempts
-- Attempts without a result, in order: of steps with a single job, and of one item.
select e.step, e.item, e.started_at, e.at as ended_at, e.retry_at, coalesce(p.data, e.data) ->> 'provider' as provider
  from retoma.events e
  left join lateral retoma.add_provider(e) p on true
 where e.run = :run and e.kind in ('failure', 'retry') and e.started_at is not null
   and (e.item = '' or e.step = :step and e.item = :item)
 order by e.id
 limit :limit;

-- name: find_run_by_key
-- The run that a key has started, and whether it was removed since.
select k.run, not exists (select from retoma.runs r where r.id = k.run) as is_removed
  from retoma.start_keys k
 where k.tenant = :tenant and k.pipeline = :pipeline and k.key = :key;

-- name: find_runs_by_id_range
-- The newest runs whose ids are in this range.
select id
  from retoma.runs
 where id between :first and :last and (:tenants::int[] is null or tenant = any (:tenants))
 order by id desc
 limit :limit;
