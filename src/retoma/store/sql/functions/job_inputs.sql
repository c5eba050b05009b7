-- Serialise the rare actions on one run that must see each other: those that stop it, and separately those that share a result
-- with items that another transaction creates. The hot path never takes these locks. There are two, because an action that
-- stops a run waits for transactions that end its jobs, and these may be waiting to share.
create or replace function retoma.lock_runs(p_for text, p_runs uuid[]) returns void language sql as $$
  select pg_advisory_xact_lock(hashtextextended(p_for || run::text, 0))
    from (select distinct run from unnest(p_runs) as run order by run) as runs;
$$;

-- Why the dependents of a job without a result have no result either.
create or replace function retoma.missing_result_code(p_state retoma.job_state, p_code text) returns text
immutable language sql as $$
  select case when p_state = 'skipped' and p_code = 'SKIPPED' then 'SKIPPED' else 'DEPENDENCY_FAILED' end;
$$;

create or replace function retoma.edge_event(p_job retoma.jobs, p_edge retoma.edges) returns retoma.edge_event
stable language sql as $$
  select (p_job.run, p_job.version, p_job.tenant, p_job.revision, p_job.rank, p_job.position, p_job.item, p_job.step,
          case when p_job.state <> 'succeeded' then retoma.missing_result_code(p_job.state, p_job.code) end, null, null,
          p_edge.to_step, p_edge.edge_kind, p_edge.via, p_edge.same_item, p_edge.optional, p_edge.self_contained,
          p_edge.queue, p_edge.head_start, p_edge.dependency_count, p_edge.pool, p_edge.opens_review)::retoma.edge_event;
$$;

-- Higher than every revision.
create or replace function retoma.max_revision() returns int immutable language sql as 'select 2147483647';

-- The jobs of an `each` step as of a revision. Simple enough for the planner to inline.
create or replace function retoma.items_at_revision(p_run uuid, p_version int, p_step text, p_through int)
returns table (item text, state retoma.job_state, output json, code text, "position" int) stable language sql as $$
  select distinct on (p.item) p.item, p.state, p.output, p.code, p.position
    from retoma.jobs p
   where p.run = p_run and p.step = p_step and p.revision <= p_through
     and p.revision >= (select retoma.item_list_revision(p_run, p_version, p_step, p_through))
   order by p.item, p.revision desc;
$$;

-- The inputs of a job's parameters as of a revision. Simple enough for the planner to inline.
create or replace function retoma.job_parameters(
  p_run uuid, p_step text, p_item text, p_version int, p_input json, p_through int)
returns table (run_retries int, run_input json, item_value json, results json[]) stable language sql as $$
  select
    r.retries,
    -- Workers whose steps take a large input fetch it once: it does not travel with every job.
    case when pg_column_size(r.input) <= 8000 then r.input end,
    coalesce(p_input, (select i.input
                         from retoma.jobs i
                        where i.run = p_run and i.step = s.item_from and i.item = p_item and i.revision <= p_through
                        order by i.revision desc limit 1)),
    array(select case d.what
                   when 'results of all items' then
                     case when (select sum(octet_length(c.output::text))
                                  from retoma.items_at_revision(p_run, p_version, d.from_step, p_through) c) > 100000000
                          then '"TOO_LARGE"'::json else
                     (select coalesce(json_agg(json_build_array(c.item, c.state, c.output, c.code) order by c.position),
                                      -- No items: the list was empty, or there never was a list.
                                      (select '[]'::json
                                         from retoma.steps e
                                         join retoma.jobs l on l.run = p_run and l.step = e.source and l.item = ''
                                        where e.version = p_version and e.step = d.from_step and l.state = 'succeeded'
                                        limit 1))
                        from retoma.items_at_revision(p_run, p_version, d.from_step, p_through) c) end
                   else
                     (select p.output
                        from retoma.jobs p
                       where p.run = p_run and p.step = d.from_step
                         and p.item = case d.what when 'result of the item' then p_item else '' end and p.revision <= p_through
                       order by p.revision desc limit 1)
                 end
            from retoma.reads d
           where d.version = p_version and d.step = p_step
           order by d.position)
    from retoma.steps s,
         lateral (select o.retries, o.input from retoma.runs o where o.id = p_run offset 0) r
   where s.version = p_version and s.step = p_step;
$$;

-- The revision of the list that a step's items come from. An item without a job since then is no longer on the list.
create or replace function retoma.item_list_revision(p_run uuid, p_version int, p_step text, p_through int) returns int
stable language sql as $$
  select coalesce(max(l.revision), 1)
    from retoma.steps s
    join retoma.jobs l on l.run = p_run and l.step = s.source and l.item = '' and l.state = 'succeeded' and l.revision <= p_through
   where s.version = p_version and s.step = p_step;
$$;
