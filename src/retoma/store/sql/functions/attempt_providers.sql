-- The data of an event with the provider that its attempt used, unless the event names it: a result has no data, and a
-- worker that died could not add the provider to its error.
create or replace function retoma.add_provider(p_event retoma.events) returns table (data json) stable language sql as $$
  select (coalesce(p_event.data::jsonb, '{}') || jsonb_build_object('provider', p.provider))::json
    from retoma.attempt_providers p
   where p_event.kind in ('result', 'failure', 'retry') and p_event.data ->> 'provider' is null
     and p.run = p_event.run and p.step = p_event.step and p.item = p_event.item
     and p.revision = p_event.revision and p.attempt = p_event.attempt
   limit 1;
$$;
