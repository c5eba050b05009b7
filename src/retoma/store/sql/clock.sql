-- name: now
select retoma.now() as at;

-- name: add_clock
-- For tests: a clock that is a row.
create table if not exists retoma.clock as select clock_timestamp() as at;

-- name: read_clock
create or replace function retoma.now() returns timestamptz language sql stable as 'select at from retoma.clock';

-- name: set_clock
update retoma.clock
   set at = :at;
