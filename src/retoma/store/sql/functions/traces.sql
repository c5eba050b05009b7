-- Return the ends of runs that no process has traced yet, each to one caller. If another call is active, or nobody has called for
-- an hour, return none: traces are not exported for what ended while they were off.
create or replace function retoma.take_ended_runs(p_limit int)
returns table (run uuid, at timestamptz, revision int, state text, first_revision int) language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := retoma.now();
  v_cursor retoma.trace_cursor;
  v_mark record;
  v_ends bigint[];
begin
  select * into v_cursor from retoma.trace_cursor for update skip locked;
  if not found then
    return;
  end if;
  select * into v_mark from retoma.next_mark(v_cursor.next, v_cursor.writers);
  if v_cursor.read_at is null or v_cursor.read_at < v_now - interval '1 hour' then
    v_cursor.through := v_mark.number;
  elsif v_mark.settled > v_cursor.through then
    v_ends := array(select e.id from retoma.events e
                     where e.kind = 'end' and e.id > v_cursor.through and e.id <= v_mark.settled
                     order by e.id
                     limit p_limit);
    v_cursor.through := case when cardinality(v_ends) = p_limit then v_ends[p_limit] else v_mark.settled end;
  end if;
  update retoma.trace_cursor
     set through = v_cursor.through, next = v_mark.number, writers = v_mark.writers, read_at = v_now
   where (through, next, writers) is distinct from (v_cursor.through, v_mark.number, v_mark.writers)
      or read_at is null or read_at < v_now - interval '1 minute';
  return query
  select e.run, e.at, e.revision, e.data ->> 'state',
         -- A run that ends again has traced its earlier revisions.
         1 + coalesce((select max(b.revision) from retoma.events b where b.run = e.run and b.kind = 'end' and b.id < e.id), 0)
    from unnest(v_ends) with ordinality as t (id, ordinal)
    join retoma.events e on e.id = t.id
   order by t.ordinal;
end $$;
