-- Adds notifications of people: their preferences and the outbox. Existing data does not change, and nobody is notified until a
-- worker starts that has a channel.

alter table retoma.people
  add column quiet_from time,              -- in the person's time zone: nothing is sent from then until `quiet_until`
  add column quiet_until time;

alter table retoma.people add constraint quiet_hours_have_two_ends
  check ((quiet_from is null) = (quiet_until is null)) not valid;

-- The channels that workers can send through, each with the preferences of people who have none of their own.
create table retoma.notification_channels (
  channel text collate "C" primary key,
  kinds text[] not null,                   -- the events that are sent
  digest text not null,
  constraint channel_is_known check (channel in ('email', 'slack', 'telegram')),
  constraint digest_is_known check (digest in ('immediately', 'hourly', 'daily'))
);

-- What a person wants to receive through a channel; null: as the channel's default.
create table retoma.notification_preferences (
  person int not null references retoma.people,
  channel text collate "C" not null,
  address text,                            -- the URL of a Slack webhook, or the chat of Telegram; null: the person's e-mail
  kinds text[],
  digest text,
  disabled_at timestamptz,                 -- since the receiver said that the address does not exist
  disabled_because text,
  primary key (person, channel),
  constraint digest_is_known check (digest in ('immediately', 'hourly', 'daily')),
  constraint disabled_with_a_reason check ((disabled_at is null) = (disabled_because is null))
);

-- One message to one person: everything that was due when it was formed. Its id stays the same in all attempts.
create table retoma.notification_messages (
  id uuid primary key default gen_random_uuid(),
  person int not null,
  channel text collate "C" not null,
  state text not null default 'due',
  attempt int not null default 0,          -- incremented by each claim; the holder of an older one may not write
  schedule_attempt int not null default 0, -- in the retry schedule, which a resend restarts
  next_at timestamptz not null,            -- due: when to send; sending: when another sender may claim it
  created_at timestamptz not null,
  ended_at timestamptz,
  error text,                              -- of the last attempt
  constraint state_is_known check (state in ('due', 'sending', 'sent', 'dead', 'cancelled')),
  constraint ended_at_is_set_when_final check ((state in ('sent', 'dead', 'cancelled')) = (ended_at is not null))
) with (fillfactor = 70);

create index open_messages_by_next_at on retoma.notification_messages (next_at) where ended_at is null;
create index messages_by_person on retoma.notification_messages (person, channel, created_at);
create index dead_messages on retoma.notification_messages (created_at) where state = 'dead';

-- One event for one person through one channel.
create table retoma.notifications (
  id bigint generated always as identity primary key,
  key text collate "C" not null,           -- of the event: it is reported once to a person and channel
  kind text not null,
  tenant int,                              -- null: of no tenant
  run uuid,
  review uuid,
  delivery uuid,
  data json,
  person int not null,
  channel text collate "C" not null,
  created_at timestamptz not null,
  due_at timestamptz not null,
  message uuid,                            -- null: not in a message yet
  ended_at timestamptz,
  cancelled_because text,
  constraint one_notification_per_event_person_and_channel unique (key, person, channel),
  constraint a_cancelled_one_has_ended check (cancelled_because is null or ended_at is not null)
) with (fillfactor = 70);

create index notifications_by_due_at on retoma.notifications (due_at) where message is null and ended_at is null;
create index notifications_by_message on retoma.notifications (message) where message is not null;
create index ended_notifications on retoma.notifications (ended_at) where ended_at is not null;

-- For the metrics of reviewers.
create index decided_reviews_by_time on retoma.reviews (decided_at) where decided_at is not null;
