-- The permitted transitions. `states.py` holds the same list, and a test compares the two.
create or replace function retoma.permitted_transitions() returns table (entity text, from_state text, to_state text)
immutable language sql as $$
  select p.entity, p.from_state, t.to_state
    from (values
      ('job', 'waiting', '{ready, parked, skipped, cancelled}'::text[]),
      ('job', 'ready', '{running, parked, cancelled}'),
      ('job', 'running', '{ready, parked, succeeded, failed, skipped, cancelled, quarantined}'),
      ('job', 'parked', '{ready, cancelled}'),
      ('run', 'pending', '{running, paused, cancelled}'),
      ('run', 'running', '{paused, needs_review, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
      ('run', 'paused', '{running, needs_review, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
      ('run', 'needs_review', '{running, paused, stuck, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
      ('run', 'stuck', '{running, paused, needs_review, cancelling, completed, completed_with_errors, failed, rejected, cancelled}'),
      ('run', 'cancelling', '{cancelled}'),
      -- Only a person's action reopens an ended run, or changes how it ended.
      ('run', 'completed', '{running, paused, needs_review, completed_with_errors}'),
      ('run', 'completed_with_errors', '{running, paused, needs_review, completed}'),
      ('run', 'failed', '{running, paused, needs_review, completed, completed_with_errors}'),
      ('review', 'open', '{approved, sent_back, rejected, expired, withdrawn}'),
      ('review', 'approved', '{open, withdrawn}'),
      ('review', 'sent_back', '{open, withdrawn}'),
      ('review', 'rejected', '{open, withdrawn}'),
      ('delivery', 'due', '{sending, dead}'),
      ('delivery', 'sending', '{due, delivered, dead}'),
      ('delivery', 'dead', '{due}')
    ) as p (entity, from_state, to_states), unnest(p.to_states) as t (to_state);
$$;

-- Make `retoma.transitions` equal to this list, and rebuild the trigger of each entity whose rows have changed. The rows are those
-- that the triggers were made from, so an upgrade that changes none of them does not wait for a lock here.
do $$
declare
  v_table text;
  v_entity text;
  v_removed boolean;
  v_permitted text;
begin
  for v_table, v_entity in values ('jobs', 'job'), ('runs', 'run'), ('reviews', 'review'), ('deliveries', 'delivery') loop
    delete from retoma.transitions t
     where t.entity = v_entity
       and not exists (select from retoma.permitted_transitions() p
                        where (p.entity, p.from_state, p.to_state) = (t.entity, t.from_state, t.to_state));
    v_removed := found;
    insert into retoma.transitions (entity, from_state, to_state)
    select p.entity, p.from_state, p.to_state from retoma.permitted_transitions() p where p.entity = v_entity
    on conflict do nothing;
    continue when not (v_removed or found);
    select string_agg(format('when %L then new.state::text in (%s)', from_state, to_states), ' ') into v_permitted
      from (select from_state, string_agg(quote_literal(to_state), ', ') as to_states
              from retoma.transitions where entity = v_entity group by from_state) t;
    -- As text: the transaction that adds a value to a type cannot use the value as one of that type.
    execute format(
      'create or replace trigger only_permitted_transitions after update of state on retoma.%I for each row
         when (old.state <> new.state and not case old.state::text %s else false end)
         execute function retoma.refuse_transition(%L)', v_table, v_permitted, v_entity);
  end loop;
end $$;
