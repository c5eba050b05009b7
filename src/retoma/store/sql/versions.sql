-- name: add_version
-- Store a version, unless it is there.
insert into retoma.versions (pipeline, digest, graph, sinks)
values (:pipeline, :digest, :graph, :sinks)
    on conflict (pipeline, digest) do nothing
returning id;

-- name: find_version
select id
  from retoma.versions
 where pipeline = :pipeline and digest = :digest;

-- name: add_steps
insert into retoma.steps (version, step, place, queue, head_start, needs, each, source, hidden, born, on_failure, item_from, pool,
                          slots)
select :version, s.*
  from unnest(:step::text[], :place::int[], :queue::text[], :head_start::bigint[], :needs::int[], :each::boolean[], :source::text[],
              :hidden::boolean[], :born::text[], :on_failure::text[], :item_from::text[], :pool::text[],
              :slots::int[]) as s;

-- name: add_edges
insert into retoma.edges (version, from_step, to_step, act, via, same_item, optional, light, queue, head_start, needs, pool)
select :version, e.*
  from unnest(:from_step::text[], :to_step::text[], :act::text[], :via::text[], :same_item::boolean[],
              :optional::boolean[], :light::boolean[], :queue::text[], :head_start::bigint[], :needs::int[], :pool::text[]) as e;

-- name: add_reads
insert into retoma.reads (version, step, position, from_step, what)
select :version, r.*
  from unnest(:step::text[], :position::int[], :from_step::text[], :what::text[]) as r;

-- name: versions_of
-- Every version of these pipelines that is newer than the newest one known.
select id, pipeline, graph::text as graph
  from retoma.versions
 where pipeline = any (:pipelines::text[]) and id > :newest;

-- name: list_pipelines
-- The pipelines of all versions.
select distinct pipeline
  from retoma.versions
 order by pipeline;

-- name: open_shapes
-- The graphs that open runs keep, with how many runs keep each.
select v.id, v.pipeline, v.graph::text as graph, count(*) as runs
  from retoma.runs r
  join retoma.versions v on v.id = r.version
 where r.ended_at is null
 group by v.id
 order by v.id;

-- name: graph_of_version
select graph::text as graph
  from retoma.versions
 where id = :version;

-- name: open_work
-- Open runs that still start work, by version and by the steps that have jobs which are not final.
select version, steps, count(*) as runs, min(id::text)::uuid as example
  from (
    select r.id, r.version, array_agg(distinct j.step order by j.step) as steps
      from retoma.runs r
      join retoma.jobs j on j.run = r.id and j.state in ('waiting', 'ready', 'running', 'parked')
     where r.ended_at is null and r.ends_as is null
     group by r.id) as work
 group by version, steps
 order by version, steps;

-- name: open_inputs
-- The inputs of the newest open runs of a version.
select id, input::text as input
  from retoma.runs
 where ended_at is null and ends_as is null and version = :version
 order by id desc
 limit :limit;

-- name: set_limits
update retoma.versions
   set stuck_after = :stuck_after, resumes = :resumes
 where id = :version and (stuck_after, resumes) is distinct from (:stuck_after, :resumes);

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
