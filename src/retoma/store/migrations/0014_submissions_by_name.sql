-- Outside work knows which part of its job has submitted it, so that it can be submitted anew; and a part of a job whether it
-- can be looked for outside.

alter table retoma.outside add effect text collate "C";
alter table retoma.effects add findable boolean not null default false;

drop function if exists retoma.locked_for_act(uuid, int);
drop function if exists retoma.state_after(text, boolean, int, int);
