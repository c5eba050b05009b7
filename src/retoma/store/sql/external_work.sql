-- name: begin_effect
-- Record that an effect starts. Returns whether it started before.
select o_state as state, o_value::text as value
  from retoma.begin_effect(:worker, :run, :step, :item, :revision, :fence, :name, :findable, :token_hash, :token_lives);

-- name: end_effect
-- Record the result of an effect, unless a later lease has taken it over. Repeating the call changes nothing.
update retoma.effects
   set value = coalesce(value, :value), done_at = coalesce(done_at, retoma.now())
 where run = :run and step = :step and item = :item and revision = :revision and name = :name
   and fence = :fence
returning name;

-- name: undo_effect
-- Remove an effect that is known not to have happened.
delete from retoma.effects
 where run = :run and step = :step and item = :item and revision = :revision and name = :name
   and fence = :fence and done_at is null;

-- name: get_ended_work
select external_id::text as external_id, state, result::text as result, error::text as error
  from retoma.external_work
 where run = :run and step = :step and item = :item and revision = :revision and ended_at is not null;

-- name: list_external_work
-- The external work of a run.
select step, item, revision, state, external_id::text as external_id, parked_at, started_at, running_at, stopping_at, ended_at, progress, polls,
       failed_polls, error::text as error
  from retoma.external_work
 where run = :run
 order by parked_at, step, item, revision;

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
select retoma.record_callback(:token_hash, :body) as answer;
