-- name: get_time
select retoma.now() as at;

-- name: is_settable
-- Whether the clock was replaced already: replacing it again would make every connection plan again.
select prosrc like '%retoma.clock%' as yes
  from pg_proc
 where oid = 'retoma.now'::regproc;

-- name: add_clock
-- For tests: a clock that is a row.
create table if not exists retoma.clock as select clock_timestamp() as at;

-- name: use_clock
create or replace function retoma.now() returns timestamptz language sql stable as 'select at from retoma.clock';

-- name: set_clock
update retoma.clock
   set at = :at;
