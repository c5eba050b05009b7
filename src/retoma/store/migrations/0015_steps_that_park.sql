-- Whether a job of this step was ever parked: only then may something go on outside that its last attempt must find.
alter table retoma.steps add column parks boolean not null default false;
update retoma.steps s set parks = true
 where exists (select from retoma.outside o where o.version = s.version and o.step = s.step);
drop function if exists retoma.judge_again(retoma.runs);
