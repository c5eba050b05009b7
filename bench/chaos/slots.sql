-- Contradictions between jobs, pools and external work: what is wrong, and with which job. $1: the most slots of a pool.
select 'slots that no running or parked job holds' as what, h.run, h.step, h.item
  from retoma.holdings h
  left join retoma.jobs j on j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision
 where j.state is null or j.state not in ('running', 'parked')
   -- What may be submitted keeps its slots while it waits for its next attempt.
   and not (j.state = 'ready'
            and exists (select from retoma.effects e
                         where e.run = j.run and e.step = j.step and e.item = j.item and e.revision = j.revision))
union all
select 'no slots', j.run, j.step, j.item
  from retoma.jobs j
  left join retoma.holdings h on h.run = j.run and h.step = j.step and h.item = j.item and h.revision = j.revision
 where j.pool is not null and j.state in ('running', 'parked') and h.run is null
union all
select 'parked without external work and without a review', j.run, j.step, j.item
  from retoma.jobs j
  left join retoma.external_work o
    on o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision and o.ended_at is null
 where j.state = 'parked' and o.run is null
   and not exists (select from retoma.reviews v
                    where v.run = j.run and v.step = j.step and v.item = j.item and v.revision = j.revision)
   -- In a stopping run it waits while a worker looks for what it may have left at the provider.
   and not (j.stopping and exists (select from retoma.effects e
                                    where e.run = j.run and e.step = j.step and e.item = j.item and e.revision = j.revision
                                      and e.next_at is not null))
union all
-- Work that a job left behind when it ended is cancelled after its end.
select 'external work of a job that has neither parked nor ended', o.run, o.step, o.item
  from retoma.external_work o
  join retoma.jobs j on j.run = o.run and j.step = o.step and j.item = o.item and j.revision = o.revision
 where o.ended_at is null and j.state in ('waiting', 'ready', 'running')
union all
select 'more slots than the pool ever had', null, h.pool, sum(h.slots)::text
  from retoma.holdings h
 group by h.pool
having sum(h.slots) > $1;
