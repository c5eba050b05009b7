-- Events get their ids before their transactions commit, so a lower id may appear after a higher one. A reader that must not
-- miss an event, nor see one twice, takes a mark: the highest id assigned so far, and the transactions that may still commit a
-- lower one. Once all these writers have ended, no event up to that id can appear any more: the mark is settled.

-- Take a mark that is not below `p_least`.
create or replace function retoma.mark_events(p_least bigint, out number bigint, out writers text[])
volatile language plpgsql as $$
begin
  -- Read the id first: a transaction with a lower id holds its table lock by then, unless it has ended.
  number := greatest(p_least, retoma.last_event_id());
  writers := retoma.event_writers();
end $$;

-- The highest id that was assigned to an event.
create or replace function retoma.last_event_id() returns bigint volatile language sql as $$
  select last_value - (not is_called)::int from retoma.events_id_seq;
$$;

create or replace function retoma.have_writers_ended(p_writers text[]) returns boolean volatile language sql as $$
  select p_writers = '{}' or not p_writers && retoma.event_writers();
$$;

-- The open transactions that have written events or are about to.
create or replace function retoma.event_writers() returns text[] volatile language sql as $$
  select coalesce(array_agg(virtualtransaction), '{}')
    from pg_locks
   where locktype = 'relation' and mode = 'RowExclusiveLock' and relation = 'retoma.events'::regclass
     and database = (select oid from pg_database where datname = current_database());
$$;

-- For readers of events in the order of ids: `settled` is the id up to which they may read now, given their last mark, or null
-- if it has not moved. The mark for the next call follows. If no id was assigned since, nothing else is read.
create or replace function retoma.next_mark(
  p_number bigint, p_writers text[], out settled bigint, out number bigint, out writers text[])
volatile language plpgsql as $$
begin
  number := p_number;
  writers := p_writers;
  if not retoma.have_writers_ended(p_writers) then
    return;
  end if;
  settled := p_number;
  if retoma.last_event_id() > p_number then
    select m.number, m.writers into number, writers from retoma.mark_events(p_number) m;
    if writers = '{}' then
      settled := number;
    end if;
  end if;
end $$;
