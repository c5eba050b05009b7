-- name: get_ended_work
select state, result::text as result, error::text as error
  from retoma.external_work
 where run = :run and step = :step and item = :item and revision = :revision and ended_at is not null;

-- name: list_external_work
-- The external work of a run.
select step, item, revision, state, external_id::text as external_id, parked_at, started_at, running_at, stopping_at, ended_at, progress, polls,
       failed_polls, error::text as error, poll_interval is null as is_child_run
  from retoma.external_work
 where run = :run
 order by parked_at, step, item, revision;

-- name: is_child_run_awaited
-- Whether a job waits for this child run that still needs it.
select exists (
    select from retoma.external_work o
      join retoma.jobs j on j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
     where o.run = (r.parent).run and o.step = (r.parent).step and o.item = (r.parent).item
       and o.ended_at is null and o.external_id #>> '{}' = r.id::text and j.state = 'parked' and not j.stopping) as is_awaited
  from retoma.runs r
 where r.id = :child;

-- name: find_child_run
-- The run that a key has started, as the job sees it that asks for a child run: whether this job has started it; whether an earlier
-- revision of the job will cancel it, because the job was replaced while it waited for the child, or while it started the child;
-- and whether its input has this digest.
select r.id, r.state::text as state, k.digest = :digest as has_same_input,
       coalesce((r.parent).run = :run and (r.parent).step = :step and (r.parent).item = :item, false) as is_own,
       exists (
         select from retoma.external_work o
          where o.run = (r.parent).run and o.step = (r.parent).step and o.item = (r.parent).item and o.revision < :revision
            and o.ended_at is null and o.external_id #>> '{}' = r.id::text)
       or exists (
         select from retoma.effects e
          where e.run = (r.parent).run and e.step = (r.parent).step and e.item = (r.parent).item and e.revision < :revision
            and e.request is not null and e.next_at is not null
            and (e.value #>> '{}' = r.id::text or e.value is null and e.revision = (r.parent).revision)) as is_abandoned
  from retoma.start_keys k
  join retoma.runs r on r.id = k.run
 where k.tenant = :tenant and k.pipeline = :pipeline and k.key = :key;

-- name: poll_due
select run, step, item, revision, version, external_id::text as external_id, poll, cancel, polls, state, stop, given_up, callback_received,
       callback_body::text as callback_body, worker_deaths, seconds_left
  from retoma.poll_due(:versions, :limit, :lease, :worker, :suspect);

-- name: record_poll
select retoma.record_poll(
  :run, :step, :item, :revision, :polls, :state, :progress, :result, :error, :failed, :stopping) as taken;

-- name: has_callback
select exists (select from retoma.callbacks where token_hash = :token_hash) as found;

-- name: record_callback
-- The answer, and the attempt that waits for this callback, as it was before.
select retoma.record_callback(:token_hash, :body) as answer, j.run, j.step, j.item, j.revision, j.fence
  from (select) this
  left join retoma.callbacks c on c.token_hash = :token_hash
  left join retoma.jobs j on j.run = c.run and j.step = c.step and j.item = c.item and j.revision = c.revision;
