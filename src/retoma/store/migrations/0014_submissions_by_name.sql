-- Outside work knows which part of its job has submitted it, so that it can be submitted anew.

alter table retoma.outside add effect text collate "C";

update retoma.outside o
   set effect = (select e.name from retoma.effects e
                  where e.run = o.run and e.step = o.step and e.item = o.item and e.revision = o.revision
                    and e.value::jsonb = o.handle::jsonb
                  order by e.begun_at desc limit 1)
 where o.state <> 'succeeded';

drop function if exists retoma.locked_for_act(uuid, int);
drop function if exists retoma.state_after(text, boolean, int, int);
