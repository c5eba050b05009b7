-- A pipeline may name another one that follows the rejection of its runs. That run starts in the transaction that ends the
-- rejected run, however it was rejected, so it is never lost and never started twice.

create or replace function retoma.start_after_rejection() returns trigger language plpgsql as $$
declare
  v_version int := (select v.on_rejected from retoma.versions v where v.id = new.version);
begin
  if v_version is not null then
    perform retoma.start_runs(
      array[retoma.new_run_id()], array[new.tenant], array[v_version], array[retoma.describe_rejection(new)], array[null::text],
      array[null::bytea], array[null::timestamptz], array[0::bigint], array[null::json], array[null::int], array[null::int],
      array[null::interval], array[new.title], true);
  end if;
  return null;
end $$;

create or replace trigger rejected_run_starts_its_follow_up
  after update of ended_at on retoma.runs for each row
  when (new.state = 'rejected' and old.ended_at is null and new.ended_at is not null)
  execute function retoma.start_after_rejection();

-- The input of the run that follows: the rejected run, and the review that rejected it. `by` is null if that expired.
create or replace function retoma.describe_rejection(p_run retoma.runs) returns json stable language sql as $$
  select json_build_object('run', p_run.id, 'run_input', p_run.input, 'step', v.step, 'by', v.decided_by, 'notes', coalesce(v.notes, ''))
    from retoma.reviews v
   where v.run = p_run.id and v.applied_at is not null and retoma.effective_decision(v) = 'rejected' and retoma.rejection_ends_run(v)
   order by v.applied_at desc
   limit 1;
$$;

-- A UUIDv7, as clients create them: the milliseconds, then random bits.
create or replace function retoma.new_run_id() returns uuid volatile language sql as $$
  select encode(set_bit(set_bit(overlay(
           uuid_send(gen_random_uuid())
           placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid;
$$;
