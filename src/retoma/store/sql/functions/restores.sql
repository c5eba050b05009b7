-- Make a database that was just restored from a backup safe to work on, although the world outside is newer than it. The workers
-- of the old machine have ended for this database, even if one of them still runs and connects here. Its servers are forgotten.
create or replace function retoma.begin_restored_state(p_backup uuid, p_taken_at timestamptz, p_outbox text, out jobs int, out held int, out dropped int)
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  jobs := retoma.end_leases_of_old_machine();
  delete from retoma.servers;
  insert into retoma.restores (backup, taken_at, restored_at, outbox) values (p_backup, p_taken_at, v_now, p_outbox);
  held := case when p_outbox = 'send' then 0 else retoma.hold_outbox(v_now) end;
  dropped := case when p_outbox = 'drop' then retoma.drop_held() else 0 end;
  held := held - dropped;
end $$;

-- Release the jobs of all workers. Afterwards no id of a worker and no fence is one that the old machine has used or will use. The
-- distance is random, because the old machine may be an earlier restore of the same backup.
create or replace function retoma.end_leases_of_old_machine() returns int language plpgsql as $$
declare
  v_jobs int := 0;
  v_distance int := 1000000 + (random() * 1000000)::int;
  v_worker int;
  v_workers text := pg_get_serial_sequence('retoma.workers', 'id');
begin
  for v_worker in select id from retoma.workers where ended_at is null order by id loop
    v_jobs := v_jobs + retoma.deregister_worker(v_worker, 'interrupted', 'INTERRUPTED');
  end loop;
  perform setval(v_workers, nextval(v_workers) + v_distance);
  update retoma.jobs set fence = fence + v_distance where ended_at is null;
  update retoma.effects set fence = fence + v_distance where done_at is null;
  return v_jobs;
end $$;

-- Whether this run existed when the database was restored: another machine may have continued it, and made calls that are not
-- recorded here.
create or replace function retoma.may_have_continued_elsewhere(p_run uuid) returns boolean stable language sql as $$
  select exists (select from retoma.restores s join retoma.runs r on r.id = p_run where r.created_at <= s.restored_at);
$$;

-- Keep webhooks and notifications that were due by then from being sent: the old machine may have sent them. They wait at
-- `infinity`. Returns how many.
create or replace function retoma.hold_outbox(p_now timestamptz) returns int language plpgsql as $$
begin
  perform retoma.enqueue_all_pending_events(2147483647);
  update retoma.deliveries d set state = 'due', next_at = 'infinity'
   where d.ended_at is null and (d.next_at <= p_now or d.state = 'sending');
  update retoma.notification_messages m set state = 'due', next_at = 'infinity'
   where m.ended_at is null and (m.next_at <= p_now or m.state = 'sending');
  update retoma.notifications n set due_at = 'infinity'
   where n.message is null and n.ended_at is null and n.due_at <= p_now;
  return (select c.webhooks + c.notifications from retoma.count_held() c);
end $$;

-- Webhooks that wait at `infinity` for a person. The others there wait for an earlier one of their run to the same endpoint.
create or replace function retoma.held_deliveries() returns setof retoma.deliveries stable language sql as $$
  select d.*
    from retoma.deliveries d
   where d.ended_at is null and d.next_at = 'infinity'
     and not exists (select from retoma.deliveries o
                      where o.run = d.run and o.endpoint = d.endpoint and o.ended_at is null and o.seq < d.seq);
$$;

create or replace function retoma.count_held(out webhooks int, out notifications int) stable language sql as $$
  select (select count(*) from retoma.held_deliveries())::int,
         ((select count(*) from retoma.notifications n where n.message is null and n.ended_at is null and n.due_at = 'infinity')
          + (select count(*) from retoma.notification_messages m where m.ended_at is null and m.next_at = 'infinity'))::int;
$$;

-- Send what was held. Returns how many.
create or replace function retoma.release_held() returns int language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_count int := (select c.webhooks + c.notifications from retoma.count_held() c);
begin
  update retoma.deliveries d set next_at = greatest(v_now, e.open_until)
    from retoma.endpoints e
   where e.id = d.endpoint and d.id in (select h.id from retoma.held_deliveries() h);
  update retoma.notification_messages m set next_at = v_now where m.ended_at is null and m.next_at = 'infinity';
  update retoma.notifications n set due_at = v_now where n.message is null and n.ended_at is null and n.due_at = 'infinity';
  return v_count;
end $$;

-- End what was held without sending it. Webhooks become dead letters, which can be sent again, also those that were waiting behind
-- them when the database was restored; nobody is notified of these dead letters. Returns how many were held.
create or replace function retoma.drop_held() returns int language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_restored_at timestamptz := (select max(restored_at) from retoma.restores);
  v_count int := (select c.webhooks + c.notifications from retoma.count_held() c);
  v_dropped retoma.deliveries[];
begin
  with held as materialized (
    select h.run, h.endpoint from retoma.held_deliveries() h
  ), dropped as (
    update retoma.deliveries d set state = 'dead', ended_at = v_now
      from held h
     where d.run = h.run and d.endpoint = h.endpoint and d.ended_at is null and d.next_at = 'infinity' and d.created_at <= v_restored_at
    returning d as delivery
  )
  select array_agg(delivery) into v_dropped from dropped;
  delete from retoma.notifications n using unnest(v_dropped) d where n.delivery = d.id and n.ended_at is null;
  perform retoma.release_next_delivery(v_now, d) from unnest(v_dropped) d;
  update retoma.notifications n set ended_at = v_now, cancelled_because = 'dropped after a restore'
   where n.ended_at is null
     and (n.due_at = 'infinity' and n.message is null
          or n.message in (select m.id from retoma.notification_messages m where m.ended_at is null and m.next_at = 'infinity'));
  update retoma.notification_messages m set state = 'cancelled', ended_at = v_now where m.ended_at is null and m.next_at = 'infinity';
  return v_count;
end $$;
