-- A child run is external work of the job that started it: the job is parked, and the end of the child makes the work due for a
-- poll in the same transaction. `recheck_children` finds a child that ended before its parent was parked.

-- Start runs with their parents; null for a run that no job started.
create or replace function retoma.start_child_runs(
  p_id uuid[], p_tenant int[], p_version int[], p_input json[], p_key text[], p_digest bytea[],
  p_run_at timestamptz[], p_head_start bigint[], p_webhook json[], p_resumes int[], p_retries int[],
  p_deadline interval[], p_title text[], p_notify boolean, p_parent retoma.job_key[])
returns table (started uuid, created boolean, same_input boolean)
language plpgsql as $$
begin
  return query
  select * from retoma.start_runs(p_id, p_tenant, p_version, p_input, p_key, p_digest, p_run_at, p_head_start, p_webhook, p_resumes,
                                  p_retries, p_deadline, p_title, p_notify);
  -- A run under an existing key keeps its id and its parent.
  update retoma.runs r
     set parent = (c.run, c.step, c.item, c.revision)::retoma.job_key
    from unnest(p_id, p_parent) as c (id, run, step, item, revision)
   where r.id = c.id and c.run is not null and r.parent is null;
end $$;

create or replace function retoma.wake_parent() returns trigger language plpgsql as $$
begin
  update retoma.external_work o
     set next_at = retoma.now()
   where o.run = (new.parent).run and o.step = (new.parent).step and o.item = (new.parent).item
     and o.poll_interval is null and o.ended_at is null and o.external_id #>> '{}' = new.id::text;
  return null;
end $$;

create or replace trigger child_run_wakes_its_parent
  after update of ended_at on retoma.runs for each row
  when (new.parent is not null and old.ended_at is null and new.ended_at is not null)
  execute function retoma.wake_parent();

-- Make the external work of these jobs due at `p_at` if it is a child run whose end may have been missed. The last thing that a
-- transaction does: until it commits, the open children cannot end, and their ends hold other rows.
create or replace function retoma.recheck_children(p_at timestamptz, p_jobs retoma.job_key[]) returns void language sql as $$
  with child as materialized (
    select o.run, o.step, o.item, o.revision, (o.external_id #>> '{}')::uuid as id
      from unnest(p_jobs) j
      join retoma.external_work o on o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
     where o.poll_interval is null and o.ended_at is null and o.next_at = 'infinity'
  )
  update retoma.external_work o
     set next_at = p_at
    from child c
   where o.run = c.run and o.step = c.step and o.item = c.item and o.revision = c.revision
     and retoma.may_have_ended(c.id);
$$;

-- Whether a run has ended, or a transaction that may end it holds its row: it may not have seen what is written here. Without
-- one, no end is missed: the run cannot end until the caller commits.
create or replace function retoma.may_have_ended(p_run uuid) returns boolean language sql as $$
  select coalesce((select r.ended_at is not null from retoma.runs r where r.id = p_run for share skip locked), true);
$$;
