-- Open runs whose counters differ from what their rows say: the run, the job, what is stored, what is counted.
with open_runs as (
  select r.id, r.version, r.open_sinks
    from retoma.runs r
   where r.ended_at is null and r.final_state is null
), final as (
  -- Of each job its newest revision. One that a rerun will replace, once its needs have ended, is not final.
  select distinct on (j.run, j.step, j.item)
         j.run, j.step, j.item,
         j.state in ('succeeded', 'failed', 'skipped', 'quarantined')
         and not exists (select from retoma.pending_reruns l
                          where l.run = j.run and l.step = j.step and l.item = j.item and l.revision > j.revision) as final
    from retoma.jobs j
    join open_runs r on r.id = j.run
   order by j.run, j.step, j.item, j.revision desc
), unsettled as (
  -- For each edge that is counted, how much of it is left: one for a job that is not final, or for a fan-out
  -- whose items do not exist yet; otherwise its items that are not final.
  select r.id as run, e.to_step, e.edge_kind, e.same_item, e.from_step, e.via, s.each,
         (select count(*) from final f where f.run = r.id and f.step = s.item_from) as items,
         (select count(*) from final f where f.run = r.id and f.step = e.from_step and f.final) as finals
    from open_runs r
    join retoma.edges e on e.version = r.version and e.edge_kind in ('count', 'share', 'end')
    join retoma.steps s on s.version = e.version and s.step = e.from_step
)
select what, run, step, item, stored, counted
  from (
    select 'waiting_on' as what, j.run, j.step, j.item, j.waiting_on as stored,
           (select coalesce(sum(case
               when u.via <> '' then 1 - u.finals
               when u.each and not u.same_item then u.items - u.finals
               else 1 - (select count(*) from final f
                          where f.run = u.run and f.step = u.from_step and f.final
                            and f.item = case when u.same_item then j.item else '' end) end), 0)
              from unsettled u
             where u.run = j.run and u.to_step = j.step and u.edge_kind in ('count', 'share')) as counted
      from retoma.jobs j
      join open_runs r on r.id = j.run
     where j.state = 'waiting'
    union all
    select 'open_sinks', r.id, '', '', r.open_sinks,
           (select coalesce(sum(case
               when u.via <> '' then 1 - u.finals
               when u.each then u.items - u.finals
               else 1 - u.finals end), 0)
              from unsettled u
             where u.run = r.id and u.edge_kind = 'end')
      from open_runs r
  ) as counters
 where stored <> counted;
