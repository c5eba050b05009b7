-- name: begin_effect
-- Note that a part of a job begins, and learn whether it did before.
select o_state as state, o_value::text as value
  from retoma.begin_effect(:worker, :run, :step, :item, :revision, :fence, :name, :findable, :token_hash, :token_lives);

-- name: end_effect
-- Record what came of it, if no later lease has taken it over. Told twice, because an answer was lost, it is the same.
update retoma.effects
   set value = coalesce(value, :value), done_at = coalesce(done_at, retoma.now())
 where run = :run and step = :step and item = :item and revision = :revision and name = :name
   and fence = :fence
returning name;

-- name: undo_effect
-- It is known not to have happened.
delete from retoma.effects
 where run = :run and step = :step and item = :item and revision = :revision and name = :name
   and fence = :fence and done_at is null;

-- name: outside_of_job
select handle::text as handle, state, result::text as result, error::text as error
  from retoma.outside
 where run = :run and step = :step and item = :item and revision = :revision and ended_at is not null;

-- name: outside_of_run
-- What a run has had done outside.
select step, item, revision, state, handle::text as handle, parked_at, started_at, running_at, stopping_at, ended_at, progress, looks,
       failed_looks, error::text as error
  from retoma.outside
 where run = :run
 order by parked_at, step, item, revision;

-- name: looks_due
select run, step, item, revision, version, handle::text as handle, poll, cancel, looks, state, stop, given_up, called,
       called_with::text as called_with, deaths
  from retoma.looks_due(:versions, :limit, :lease, :worker, :suspect);

-- name: record_look
select retoma.record_look(
  :run, :step, :item, :revision, :looks, :state, :progress, :result, :error, :failed, :stopping) as taken;

-- name: has_callback
select exists (select from retoma.callbacks where token_hash = :token_hash) as found;

-- name: call_back
select retoma.call_back(:token_hash, :body) as answer;
