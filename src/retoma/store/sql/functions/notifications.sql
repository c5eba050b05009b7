-- The outbox of notifications. The transaction of an event inserts one row for each person and channel (`notify_people`), a
-- sender forms messages of what is due, and leaves out what no longer matters when it sends (`prepare_message`).

create or replace function retoma.role_rank(p_role text) returns int immutable language sql as $$
  select array_position(array['viewer', 'reviewer', 'operator', 'administrator'], p_role);
$$;

-- The active people with a role in this tenant, and the rank of their highest one. Null is the tenant of what concerns all.
create or replace function retoma.people_of_tenant(p_tenant int) returns table (person int, rank int) stable language sql as $$
  select p.id, max(retoma.role_rank(r.role))
    from retoma.person_roles r
    join retoma.people p on p.id = r.person
   where p.disabled_at is null and (r.tenant is null or r.tenant = p_tenant)
   group by p.id;
$$;

create or replace function retoma.people_from_role(p_tenant int, p_role text) returns int[] stable language sql as $$
  select coalesce(array_agg(p.person), '{}') from retoma.people_of_tenant(p_tenant) p where p.rank >= retoma.role_rank(p_role);
$$;

-- The person that a review is assigned to: by number, or by the address or the name that was written down.
create or replace function retoma.assigned_person(p_review retoma.reviews) returns int stable language sql as $$
  select coalesce(p_review.assigned_person, (
    select p.person
      from retoma.people_of_tenant(p_review.tenant) p
      join retoma.people a on a.id = p.person
     where a.email = lower(p_review.assignee) or a.name = p_review.assignee
     order by a.email = lower(p_review.assignee) desc, a.id
     limit 1));
$$;

-- The role that a review is assigned to, by its own column or by the name that was written down.
create or replace function retoma.assigned_role(p_review retoma.reviews) returns text immutable language sql as $$
  select coalesce(p_review.assigned_role, case when retoma.role_rank(p_review.assignee) is not null then p_review.assignee end);
$$;

-- Who should decide a review: the person or the role that it is assigned to, or everybody who may. If nobody has the role, the
-- next higher one takes its place.
create or replace function retoma.review_audience(p_review retoma.reviews) returns int[] stable language sql as $$
  select case
    when retoma.assigned_person(p_review) is not null then
      array(select p.person from retoma.people_of_tenant(p_review.tenant) p where p.person = retoma.assigned_person(p_review))
    when retoma.assigned_role(p_review) is not null then
      array(select p.person
              from (select p.person, p.rank, min(p.rank) over () as lowest
                      from retoma.people_of_tenant(p_review.tenant) p
                     where p.rank >= retoma.role_rank(retoma.assigned_role(p_review))) p
             where p.rank = p.lowest)
    else retoma.people_from_role(p_review.tenant, 'reviewer') end;
$$;

-- The channels of these people: where to send, what, and when.
create or replace function retoma.channels_of_people(p_people int[])
returns table (person int, channel text, address text, kinds text[], digest text, time_zone text, quiet_from time, quiet_until time)
stable language sql as $$
  select p.id, c.channel, coalesce(o.address, case when c.channel = 'email' then p.email end), coalesce(o.kinds, c.kinds),
         coalesce(o.digest, c.digest), p.time_zone, p.quiet_from, p.quiet_until
    from retoma.people p
   cross join retoma.notification_channels c
    left join retoma.notification_preferences o on o.person = p.id and o.channel = c.channel
   where p.id = any (p_people) and p.disabled_at is null and o.disabled_at is null
     and (c.channel = 'email' or o.address is not null);
$$;

-- When to send what happened now: at once, at the next full hour, or at 8 in the morning, and not within quiet hours. All in the
-- person's time zone, whose days may have 23 or 25 hours.
create or replace function retoma.notification_due_at(p_now timestamptz, p_digest text, p_zone text, p_quiet_from time, p_quiet_until time)
returns timestamptz stable language plpgsql as $$
declare
  v_at timestamptz := p_now;
  v_local timestamp;
begin
  if p_digest = 'hourly' then
    v_at := date_trunc('hour', p_now, p_zone) + interval '1 hour';
  elsif p_digest = 'daily' then
    v_local := date_trunc('day', p_now at time zone p_zone) + time '08:00';
    v_at := v_local at time zone p_zone;
    if v_at <= p_now then
      v_at := (v_local + interval '1 day') at time zone p_zone;
    end if;
  end if;
  v_local := v_at at time zone p_zone;
  if p_quiet_from < p_quiet_until and v_local::time >= p_quiet_from and v_local::time < p_quiet_until
     or p_quiet_from > p_quiet_until and v_local::time < p_quiet_until then
    return (v_local::date + p_quiet_until) at time zone p_zone;
  elsif p_quiet_from > p_quiet_until and v_local::time >= p_quiet_from then
    return (v_local::date + 1 + p_quiet_until) at time zone p_zone;
  end if;
  return v_at;
exception when invalid_parameter_value then
  -- This server does not know the zone. The event must not fail for that.
  return retoma.notification_due_at(p_now, p_digest, 'UTC', p_quiet_from, p_quiet_until);
end $$;

-- Insert the notifications of one event, in its transaction. An event that was reported before, by its key, is not reported again.
create or replace function retoma.notify_people(
  p_now timestamptz, p_kind text, p_key text, p_people int[], p_tenant int,
  p_run uuid default null, p_review uuid default null, p_delivery uuid default null, p_data json default null) returns void
language sql as $$
  insert into retoma.notifications (key, kind, tenant, run, review, delivery, data, person, channel, created_at, due_at)
  select p_key, p_kind, p_tenant, p_run, p_review, p_delivery, p_data, c.person, c.channel, p_now,
         retoma.notification_due_at(p_now, c.digest, coalesce(c.time_zone, 'UTC'), c.quiet_from, c.quiet_until)
    from retoma.channels_of_people(p_people) c
   where p_kind = any (c.kinds)
   order by c.person, c.channel
      on conflict do nothing;
$$;

-- Whether anybody can be notified. Every caller on a hot path asks first.
create or replace function retoma.has_notification_channels() returns boolean stable language sql as $$
  select exists (select from retoma.notification_channels);
$$;

-- Notify of an event of a review: `opened`, `assigned`, `reminded`, `due` or `escalated`. A review that is opened for one
-- person is assigned to that person.
create or replace function retoma.notify_of_review(p_now timestamptz, p_review retoma.reviews, p_what text) returns void
language plpgsql as $$
begin
  if retoma.has_notification_channels() then
    perform retoma.notify_people(
      p_now,
      case when p_what = 'opened' and retoma.assigned_person(p_review) is not null then 'review.assigned'
           when p_what = 'reminded' then 'review.due'
           else 'review.' || p_what end,
      -- It can be assigned several times, and is due once.
      concat_ws(' ', p_review.id, p_what, case when p_what = 'assigned' then p_now end),
      retoma.review_audience(p_review), p_review.tenant, p_run => p_review.run, p_review => p_review.id);
  end if;
end $$;

-- Notify the operators of these runs that they are stuck or have failed.
create or replace function retoma.notify_of_runs(p_now timestamptz, p_runs uuid[], p_kind text, p_data json default null) returns void
language plpgsql as $$
begin
  if retoma.has_notification_channels() then
    perform retoma.notify_people(p_now, p_kind, concat_ws(' ', r.id, p_kind, p_now), retoma.people_from_role(r.tenant, 'operator'),
                                 r.tenant, p_run => r.id, p_data => p_data)
       from retoma.runs r where r.id = any (p_runs);
  end if;
end $$;

-- Notify of a dead letter: once an hour for each endpoint, because a broken one has many.
create or replace function retoma.notify_of_dead_delivery() returns trigger language plpgsql as $$
begin
  if retoma.has_notification_channels() then
    perform retoma.notify_people(
      retoma.now(), 'delivery.dead', concat_ws(' ', new.endpoint, 'delivery.dead', date_trunc('hour', retoma.now())),
      retoma.people_from_role(nullif(new.tenant, -1), 'operator'), nullif(new.tenant, -1), p_run => new.run, p_delivery => new.id);
  end if;
  return null;
end $$;

create or replace trigger dead_deliveries_are_reported
  after insert or update of state on retoma.deliveries for each row
  when (new.state = 'dead')
  execute function retoma.notify_of_dead_delivery();

-- Notify the operators of a tenant that a budget is used up to a share, once for each key. `p_data` has `name`, `used` and
-- `limit`, the last two in millionths of a US dollar.
create or replace function retoma.notify_of_budget(p_now timestamptz, p_tenant int, p_key text, p_data json) returns void
language plpgsql as $$
begin
  if retoma.has_notification_channels() then
    perform retoma.notify_people(p_now, 'budget', 'budget ' || p_key, retoma.people_from_role(p_tenant, 'operator'), p_tenant,
                                 p_data => p_data);
  end if;
end $$;

-- Send a test to a person at once, whatever the preferences. Returns false if the channel has no address, or an earlier test is
-- still on its way.
create or replace function retoma.notify_test(p_person int, p_channel text) returns boolean language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform from retoma.people where id = p_person for update;
  if exists (select from retoma.notifications n where n.person = p_person and n.channel = p_channel and n.kind = 'test' and n.ended_at is null) then
    return false;
  end if;
  insert into retoma.notifications (key, kind, person, channel, created_at, due_at)
  select concat_ws(' ', 'test', gen_random_uuid()), 'test', c.person, c.channel, v_now, v_now
    from retoma.channels_of_people(array[p_person]) c where c.channel = p_channel;
  return found;
end $$;

-- Form messages of notifications that are due, one for each person and channel. After a message, the next waits a minute for
-- what else happens, so that a burst is one message and not fifty.
create or replace function retoma.form_messages(p_now timestamptz, p_channels text[], p_limit int) returns void language sql as $$
  with due as materialized (
    select n.id, n.person, n.channel
      from retoma.notifications n
     where n.message is null and n.ended_at is null and n.due_at <= p_now and n.channel = any (p_channels)
       and (n.kind = 'test'
            or not exists (select from retoma.notification_messages m
                            where m.person = n.person and m.channel = n.channel and m.created_at > p_now - interval '1 minute'))
     order by n.due_at, n.id
     limit p_limit
       for update of n skip locked
  ), formed as (
    insert into retoma.notification_messages (person, channel, next_at, created_at)
    select distinct d.person, d.channel, p_now, p_now from due d
    returning id, person, channel
  )
  update retoma.notifications n
     set message = f.id
    from due d
    join formed f on f.person = d.person and f.channel = d.channel
   where n.id = d.id;
$$;

-- Claim up to `p_limit` messages that are due; the caller sends them before `p_lease` ends. A channel gets at most
-- `p_per_channel` at a time.
create or replace function retoma.claim_messages(p_channels text[], p_limit int, p_per_channel int, p_lease interval)
returns table (id uuid, attempt int, schedule_attempt int, person int, channel text, created_at timestamptz, now timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := retoma.now();
begin
  perform retoma.form_messages(v_now, p_channels, 1000);
  return query
  with due as materialized (
    select m.id
      from (select m.id, m.next_at, m.channel,
                   row_number() over (partition by m.channel order by m.next_at)
                   + (select count(*) from retoma.notification_messages s
                       where s.channel = m.channel and s.state = 'sending' and s.ended_at is null and s.next_at > v_now) as turn
              from retoma.notification_messages m
             where m.ended_at is null and m.next_at <= v_now and m.channel = any (p_channels)) c
      join retoma.notification_messages m on m.id = c.id
     where c.turn <= p_per_channel and m.ended_at is null and m.next_at <= v_now
     order by m.next_at
     limit p_limit
       for update of m skip locked
  )
  update retoma.notification_messages m
     set state = 'sending', attempt = m.attempt + 1, schedule_attempt = m.schedule_attempt + 1, next_at = v_now + p_lease
    from due
   where m.id = due.id
  returning m.id, m.attempt, m.schedule_attempt, m.person, m.channel, m.created_at, v_now;
end $$;

-- Why a notification no longer matters to its person; null if it does.
create or replace function retoma.cancellation_of(p_notification retoma.notifications, p_now timestamptz) returns text
stable language sql as $$
  select case
    when p_notification.kind = 'test' then null
    when p_notification.created_at < p_now - interval '7 days' then 'older than 7 days'
    when not exists (select from retoma.people_of_tenant(p_notification.tenant) p where p.person = p_notification.person)
      then 'no role in the tenant'
    when not exists (select from retoma.channels_of_people(array[p_notification.person]) c
                      where c.channel = p_notification.channel and p_notification.kind = any (c.kinds)) then 'not wanted'
    when p_notification.kind like 'review.%' then (
      select case when v.state <> 'open' then 'decided'
                  when p_notification.person <> all (retoma.review_audience(v)) then 'assigned to others' end
        from retoma.reviews v where v.id = p_notification.review)
    when p_notification.kind in ('run.stuck', 'run.failed') then (
      select case when 'run.' || r.state <> p_notification.kind then 'the run is ' || r.state end
        from retoma.runs r where r.id = p_notification.run)
    when p_notification.kind = 'delivery.dead' then (
      select case when d.state <> 'dead' then 'sent again' end from retoma.deliveries d where d.id = p_notification.delivery)
    end;
$$;

-- Leave out what no longer matters, and return the rest. A decision that can still be undone keeps its review for later. If
-- nothing is left, the message is cancelled. Returns nothing if another sender has claimed the message.
create or replace function retoma.prepare_message(p_message uuid, p_attempt int) returns setof retoma.notifications
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
begin
  perform from retoma.notification_messages m where m.id = p_message and m.attempt = p_attempt and m.state = 'sending' for update;
  if not found then
    return;
  end if;
  update retoma.notifications n
     set message = null, due_at = v.effective_at + interval '1 second'
    from retoma.reviews v
   where n.message = p_message and n.ended_at is null and v.id = n.review and v.decided_at is not null and v.applied_at is null;
  update retoma.notifications n
     set ended_at = v_now, cancelled_because = retoma.cancellation_of(n, v_now)
   where n.message = p_message and n.ended_at is null and retoma.cancellation_of(n, v_now) is not null;
  return query select n.* from retoma.notifications n where n.message = p_message and n.ended_at is null order by n.id;
  if not found then
    update retoma.notification_messages m set state = 'cancelled', ended_at = v_now where m.id = p_message;
  end if;
end $$;

-- Record the outcome of an attempt: `delivered`, `again` after `p_delay`, `dead`, or `gone` together with the person's address.
-- Returns the message's state, or null if another sender has claimed it. `p_pause` delays the person's other messages.
create or replace function retoma.record_message_attempt(
  p_message uuid, p_attempt int, p_outcome text, p_delay interval, p_pause interval, p_error text) returns text
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_message retoma.notification_messages;
begin
  update retoma.notification_messages m
     set state = case p_outcome when 'delivered' then 'sent' when 'again' then 'due' else 'dead' end,
         next_at = case p_outcome when 'again' then v_now + p_delay else m.next_at end,
         ended_at = case when p_outcome <> 'again' then v_now end, error = p_error
   where m.id = p_message and m.attempt = p_attempt and m.state = 'sending'
  returning m.* into v_message;
  if not found then
    return null;
  end if;
  if p_outcome = 'delivered' then
    update retoma.notifications n set ended_at = v_now where n.message = p_message and n.ended_at is null;
  elsif p_outcome = 'gone' then
    update retoma.notification_preferences o set disabled_at = v_now, disabled_because = p_error
     where o.person = v_message.person and o.channel = v_message.channel and o.disabled_at is null;
  end if;
  if p_pause is not null then
    update retoma.notification_messages m set next_at = v_now + p_pause
     where m.person = v_message.person and m.channel = v_message.channel and m.state = 'due' and m.next_at < v_now + p_pause;
  end if;
  return v_message.state;
end $$;

-- Send dead messages again: one, or all. Returns how many.
create or replace function retoma.resend_messages(p_message uuid) returns int language plpgsql as $$
declare
  v_count int;
begin
  update retoma.notification_messages m
     set state = 'due', schedule_attempt = 0, ended_at = null, next_at = retoma.now()
   where m.state = 'dead' and (p_message is null or m.id = p_message);
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Delete what ended more than 30 days ago.
create or replace function retoma.delete_old_notifications(p_limit int) returns void language sql as $$
  delete from retoma.notifications where ctid = any (array(
    select ctid from retoma.notifications where ended_at < retoma.now() - interval '30 days' limit p_limit));
  delete from retoma.notification_messages m where m.ctid = any (array(
    select o.ctid from retoma.notification_messages o
     where o.ended_at < retoma.now() - interval '30 days'
       and not exists (select from retoma.notifications n where n.message = o.id)
     order by o.ended_at limit p_limit));
$$;
