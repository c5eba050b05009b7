-- Lets the tallies count for how long runs waited for people. Replaces a constraint of a table of some dozen rows: quick.
alter table retoma.tallies
  drop constraint what_is_known,
  add constraint what_is_known check (what in ('ended', 'waited', 'worked', 'asked', 'delivery'));
