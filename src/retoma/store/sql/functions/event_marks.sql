-- Events get their numbers before their transactions commit, so that a lower number may appear after a higher one. Who
-- must miss none, and see none twice, takes a mark: the highest number given so far, and who may still commit a lower one.
-- Once all these writers have ended, nothing up to that number can come any more: the mark is settled.

-- Take a mark that is not below `p_least`.
create or replace function retoma.mark_events(p_least bigint, out number bigint, out writers text[])
volatile language plpgsql as $$
begin
  -- The number first: who has taken a lower one has its lock on the table by then, unless it has ended.
  number := greatest(p_least, retoma.last_event());
  writers := retoma.event_writers();
end $$;

-- The highest number that was given to an event.
create or replace function retoma.last_event() returns bigint volatile language sql as $$
  select last_value - (not is_called)::int from retoma.events_id_seq;
$$;

create or replace function retoma.is_settled(p_writers text[]) returns boolean volatile language sql as $$
  select p_writers = '{}' or not p_writers && retoma.event_writers();
$$;

-- The transactions that have written events, or are about to, and have not ended.
create or replace function retoma.event_writers() returns text[] volatile language sql as $$
  select coalesce(array_agg(virtualtransaction), '{}')
    from pg_locks
   where locktype = 'relation' and mode = 'RowExclusiveLock' and relation = 'retoma.events'::regclass
     and database = (select oid from pg_database where datname = current_database());
$$;

-- For one who reads events in the order of their numbers: `settled` is through which it may read now, given its last mark,
-- null if not further than before; the mark to come with next time follows. While no number was given since, nothing else
-- is looked at.
create or replace function retoma.next_mark(
  p_number bigint, p_writers text[], out settled bigint, out number bigint, out writers text[])
volatile language plpgsql as $$
begin
  number := p_number;
  writers := p_writers;
  if not retoma.is_settled(p_writers) then
    return;
  end if;
  settled := p_number;
  if retoma.last_event() > p_number then
    select m.number, m.writers into number, writers from retoma.mark_events(p_number) m;
    if writers = '{}' then
      settled := number;
    end if;
  end if;
end $$;
