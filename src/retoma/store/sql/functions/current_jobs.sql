-- The current jobs of a run: the latest of every step and item, without items that are no longer on their list.
create or replace function retoma.current_jobs(p_run uuid) returns setof retoma.jobs stable language sql as $$
  select * from retoma.jobs_at_revision(p_run, retoma.max_revision());
$$;

-- The same as of a revision.
create or replace function retoma.jobs_at_revision(p_run uuid, p_through int) returns setof retoma.jobs stable language sql as $$
  with lists as materialized (
    select s.step, retoma.item_list_revision(p_run, s.version, s.step, p_through) as revision
      from retoma.runs r
      join retoma.steps s on s.version = r.version and s.each
     where r.id = p_run and r.revision > 1
  )
  select distinct on (j.step, j.item) j.*
    from retoma.jobs j
   where j.run = p_run and j.revision <= p_through
     and j.revision >= coalesce((select l.revision from lists l where l.step = j.step), 1)
   order by j.step, j.item, j.revision desc;
$$;

-- Results whose inputs are no longer current.
create or replace function retoma.stale_jobs(p_run uuid) returns setof retoma.job_key stable language sql as $$
  with current_jobs as materialized (
    select * from retoma.current_jobs(p_run)
  )
  select distinct s.run, s.step, s.item, s.revision
    from current_jobs s
    join retoma.reads d on d.version = s.version and d.step = s.step
    join current_jobs n on n.step = d.from_step and (d.what <> 'result of the item' or n.item = s.item)
   where s.state = 'succeeded' and n.state = 'succeeded' and n.revision > s.revision;
$$;

-- Jobs without a result in an ended run: those that failed, and those that the stop prevented. A job that ended while the run
-- was stopping has created no successor: the successor is missing, or, if the job returned a list, it must run again.
create or replace function retoma.jobs_without_result(p_run retoma.runs) returns setof retoma.job_key stable language sql as $$
  with current_jobs as materialized (
    select * from retoma.current_jobs(p_run.id)
  )
  select s.run, s.step, s.item, s.revision from current_jobs s
   where s.state in ('failed', 'quarantined') and not retoma.is_resolved_by_person(s) or s.state = 'cancelled' and p_run.final_state = 'failed'
  union
  select s.run, case g.edge_kind when 'create' then g.to_step else s.step end, s.item, s.revision
    from current_jobs s
    join retoma.edges g on g.version = p_run.version and g.from_step = s.step and g.edge_kind in ('create', 'expand')
   where s.state = 'succeeded' and s.stopping and p_run.final_state = 'failed'
     and not exists (select from current_jobs t where t.step = g.to_step and (t.item = s.item or g.edge_kind = 'expand'));
$$;

-- The other jobs that a failed run must run to continue.
create or replace function retoma.other_jobs_without_result(p_run retoma.runs, p_edited retoma.job_key[]) returns retoma.job_key[] stable language sql as $$
  select coalesce(array_agg(l), '{}')
    from retoma.jobs_without_result(p_run) l
   where p_run.final_state = 'failed' and not exists (select from unnest(p_edited) g where g.step = l.step and g.item = l.item);
$$;

-- Whether a person has recorded a downstream result for the item of this failed job, which no rerun has replaced.
create or replace function retoma.is_resolved_by_person(p_job retoma.jobs) returns boolean stable language sql as $$
  select retoma.stays_resolved_by_person(p_job, '{}');
$$;

-- The same after the rerun of these jobs: an item that is null stands for all items of the step.
create or replace function retoma.stays_resolved_by_person(p_job retoma.jobs, p_rerun retoma.job_key[]) returns boolean stable language sql as $$
  with recursive chain (step) as (
    select p_job.step
    union
    select g.to_step from chain c join retoma.edges g on g.version = p_job.version and g.from_step = c.step and g.same_item
  )
  select exists (select from chain c
                   join retoma.jobs t on t.run = p_job.run and t.step = c.step and t.item = p_job.item
                  where t.step <> p_job.step and t.author is not null and t.state = 'succeeded' and t.revision >= p_job.revision
                    and not exists (select from retoma.jobs u
                                     where u.run = t.run and u.step = t.step and u.item = t.item and u.revision > t.revision)
                    and not exists (select from unnest(p_rerun) a where a.step = t.step and (a.item = t.item or a.item is null)));
$$;
