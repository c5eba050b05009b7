-- name: add_version
-- Add a version, unless it exists.
insert into retoma.versions (pipeline, digest, graph, sinks)
values (:pipeline, :digest, :graph, :sinks)
    on conflict (pipeline, digest) do nothing
returning id;

-- name: find_version
select id
  from retoma.versions
 where pipeline = :pipeline and digest = :digest;

-- name: add_steps
insert into retoma.steps (version, step, position, queue, head_start, dependency_count, each, source, internal, created_on, on_failure, item_from, pool,
                          slots, opens_review)
select :version, s.*
  from unnest(:step::text[], :position::int[], :queue::text[], :head_start::bigint[], :dependency_count::int[], :each::boolean[], :source::text[],
              :internal::boolean[], :created_on::text[], :on_failure::text[], :item_from::text[], :pool::text[],
              :slots::int[], :opens_review::boolean[]) as s;

-- name: add_edges
insert into retoma.edges (version, from_step, to_step, edge_kind, via, same_item, optional, self_contained, queue, head_start, dependency_count, pool, opens_review)
select :version, e.*
  from unnest(:from_step::text[], :to_step::text[], :edge_kind::text[], :via::text[], :same_item::boolean[],
              :optional::boolean[], :self_contained::boolean[], :queue::text[], :head_start::bigint[], :dependency_count::int[], :pool::text[],
              :opens_review::boolean[]) as e;

-- name: add_reads
insert into retoma.reads (version, step, position, from_step, what)
select :version, r.*
  from unnest(:step::text[], :position::int[], :from_step::text[], :what::text[]) as r;

-- name: list_newer_versions
-- Every version of these pipelines that is newer than the newest one known.
select id, pipeline, graph::text as graph
  from retoma.versions
 where pipeline = any (:pipelines::text[]) and id > :newest;

-- name: list_pipelines
-- The pipelines of all versions.
select distinct pipeline
  from retoma.versions
 order by pipeline;

-- name: get_graph
select graph::text as graph
  from retoma.versions
 where id = :version;

-- name: list_open_work
-- Open runs that still start work, by version and by the steps whose jobs are not final.
select version, steps, count(*) as runs, min(id::text)::uuid as example
  from (
    select r.id, r.version, array_agg(distinct j.step order by j.step) as steps
      from retoma.runs r
      join retoma.jobs j on j.run = r.id and j.state in ('waiting', 'ready', 'running', 'parked')
     where r.ended_at is null and r.final_state is null
     group by r.id) as work
 group by version, steps
 order by version, steps;

-- name: list_open_inputs
-- The inputs of the newest open runs of a version.
select id, input::text as input
  from retoma.runs
 where ended_at is null and final_state is null and version = :version
 order by id desc
 limit :limit;

-- name: set_limits
update retoma.versions
   set stuck_after = :stuck_after, resumes = :resumes, retention = :retention
 where id = :version and (stuck_after, resumes, retention) is distinct from (:stuck_after, :resumes, :retention);

-- name: set_timeouts
update retoma.steps s
   set timeout = t.timeout
  from unnest(:step::text[], :timeout::interval[]) as t (step, timeout)
 where s.version = :version and s.step = t.step and s.timeout <> t.timeout;

-- name: set_reviews
update retoma.steps s
   set review = t.review
  from unnest(:step::text[], :review::json[]) as t (step, review)
 where s.version = :version and s.step = t.step and s.review::text is distinct from t.review::text;

-- name: set_on_rejected
update retoma.versions
   set on_rejected = :version
 where pipeline = :pipeline and on_rejected is distinct from :version;
