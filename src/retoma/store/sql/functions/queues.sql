-- Those of these queues that are not paused, in the same order.
create or replace function retoma.open_queues(p_queues text[]) returns text[] stable language sql as $$
  select coalesce(array_agg(w.queue order by w.ordinal), '{}')
    from unnest(p_queues) with ordinality as w (queue, ordinal)
   where not retoma.is_paused(w.queue);
$$;

create or replace function retoma.is_paused(p_queue text) returns boolean stable language sql as $$
  select exists (select from retoma.queues q where q.name = p_queue and q.paused_at is not null);
$$;
