-- name: add_channel
-- Register a channel that this process can send through. Its defaults stay as people have set them.
insert into retoma.notification_channels (channel, kinds, digest)
values (:channel, :kinds::text[], 'immediately')
    on conflict do nothing;

-- name: list_channel_defaults
select channel, kinds, digest
  from retoma.notification_channels
 order by channel;

-- name: set_channel_default
update retoma.notification_channels
   set kinds = :kinds::text[], digest = :digest
 where channel = :channel
returning channel;

-- name: list_preferences
select channel, kinds, digest, address, disabled_at, disabled_because
  from retoma.notification_preferences
 where person = :person
 order by channel;

-- name: set_preference
-- Set what a person wants of a channel. An address that was refused works again.
insert into retoma.notification_preferences (person, channel, address, kinds, digest)
values (:person, :channel, :address, :kinds::text[], :digest)
    on conflict (person, channel) do update
   set address = excluded.address, kinds = excluded.kinds, digest = excluded.digest, disabled_at = null, disabled_because = null;

-- name: get_quiet_hours
select quiet_from, quiet_until
  from retoma.people
 where id = :person;

-- name: set_quiet_hours
update retoma.people
   set quiet_from = :quiet_from::time, quiet_until = :quiet_until::time
 where id = :person;

-- name: notify_test
select retoma.notify_test(:person, :channel) as sent;

-- name: notify_of_budget
select retoma.notify_of_budget(retoma.now(), :tenant, :key, :data::json);

-- name: claim_messages
-- Claim messages that are due, each with the person and the address to send it to.
select m.id, m.attempt, m.schedule_attempt, m.person, m.channel, m.created_at, m.now, p.name, p.language, p.time_zone, c.address
  from retoma.claim_messages(:channels::text[], :limit, :per_channel, :lease) m
  join retoma.people p on p.id = m.person
  left join retoma.channels_of_people(array[m.person]) c on c.channel = m.channel;

-- name: prepare_message
-- What the message says now. Returns no row if nothing is left of it, or if another sender has claimed it.
select n.id, n.kind, t.name as tenant, n.run, r.title as run_title, g.pipeline, n.review, v.step, v.item, v.due_at, n.delivery,
       n.data::text as data, n.created_at
  from retoma.prepare_message(:id, :attempt) n
  left join retoma.tenants t on t.id = n.tenant
  left join retoma.runs r on r.id = n.run
  left join retoma.versions g on g.id = r.version
  left join retoma.reviews v on v.id = n.review
 order by n.id;

-- name: record_attempt
-- Record the outcome of an attempt. Returns null if another sender has claimed the message.
select retoma.record_message_attempt(:id, :attempt, :outcome, :delay, :pause, :error) as state;

-- name: list_messages
-- Newest first: of one person or of all.
select m.id, m.person, p.name as person_name, m.channel, m.state, m.attempt,
       array(select distinct n.kind from retoma.notifications n where n.message = m.id order by 1) as kinds,
       m.created_at, case when m.ended_at is null and m.next_at < 'infinity' then m.next_at end as next_at, m.ended_at, m.error
  from retoma.notification_messages m
  join retoma.people p on p.id = m.person
 where (:person::int is null or m.person = :person)
   and (:states::text[] is null or m.state = any (:states))
 order by m.created_at desc, m.id
 limit :limit;

-- name: resend_messages
select retoma.resend_messages(:id) as messages;

-- name: delete_old
select retoma.delete_old_notifications(:limit);

-- name: get_notification_metrics
-- Notifications that wait to be sent, messages that were given up, and how late the oldest is.
select (select count(*) from retoma.notifications where message is null and ended_at is null) as pending,
       (select count(*) from retoma.notification_messages where state = 'dead') as dead,
       (select retoma.now() - min(next_at) from retoma.notification_messages where ended_at is null and next_at <= retoma.now()) as late_for;
