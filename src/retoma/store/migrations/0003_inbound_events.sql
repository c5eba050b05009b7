-- Adds events that other systems send: kept once each, and read in the order of their sequence numbers.

create table retoma.inbound_events (
  app text not null,
  stream text not null,                    -- what the numbers count within, such as one post of one site
  sequence bigint not null,                -- from 1, without gaps
  event_id text not null,
  body json not null,
  received_at timestamptz not null,
  primary key (app, stream, sequence),
  constraint one_number_for_each_event unique (app, stream, event_id),
  constraint sequence_starts_at_one check (sequence >= 1)
);
