-- Adds running totals of how runs and deliveries ended, for metrics. Rewrites no row.

-- How often something ended, and how long it took. A row counts what took at most `under` seconds and more than
-- the row before it.
create table retoma.tallies (
  pipeline text collate "C" not null,
  what text not null,
  outcome text collate "C" not null default '',
  under double precision not null default 'infinity',
  times bigint not null,
  seconds double precision not null default 0,
  primary key (pipeline, what, outcome, under),
  constraint what_is_known check (what in ('ended', 'waited', 'worked', 'delivery'))
) with (fillfactor = 50);

-- Which events are in the tallies: those through `through`. Those through `next` follow as soon as the transactions of
-- `writers` have ended, since only they could still commit an event with a lower number.
create table retoma.tallied (
  through bigint not null,
  next bigint not null,
  writers text[] not null
);

insert into retoma.tallied (through, next, writers) values (0, 0, '{}');

create index events_ends on retoma.events (id) where kind = 'end';

-- Deliveries that ended and are not in the tallies yet. One that was sent again ends again.
create table retoma.delivery_ends (
  pipeline text collate "C" not null,
  state retoma.delivery_state not null
);

create function retoma.note_delivery_end() returns trigger language plpgsql as $$
begin
  insert into retoma.delivery_ends (pipeline, state) values (new.pipeline, new.state);
  return null;
end $$;

create trigger ends_are_noted
  after insert or update of state on retoma.deliveries for each row
  when (new.state in ('delivered', 'dead'))
  execute function retoma.note_delivery_end();

create index deliveries_dead on retoma.deliveries (pipeline) where state = 'dead';
