-- name: list_items
-- Items in their order, after the last one of the previous page, with the last error of each.
with page as materialized (
  select * from retoma.item_states(:run, :source) i
   where (:states::text[] is null or i.state = any (:states))
     and (:search::text is null or position(lower(:search) in lower(i.item)) > 0)
     and (:only::text[] is null or i.item = any (:only))
     and i.position > :after
   order by i.position
   limit :limit
), errors as (
  -- Read the run's events once, whatever the number of items.
  select distinct on (e.item, e.revision) e.item, e.revision, e.data, e.at
    from retoma.events e
   where exists (select from page p where p.tried)
     and e.run = :run and e.kind in ('failure', 'retry') and e.item = any (array(select p.item from page p where p.tried))
   order by e.item, e.revision, e.id desc
)
select i.item, i.position, v.input::text as value, i.state, i.step, i.attempt, i.code, e.data::text as error, e.at as error_at,
       i.started_at, i.ended_at,
       o.output::text as output, o.author
  from page i
  left join lateral (
    select j.input
      from retoma.runs r
      join retoma.steps s on s.version = r.version and s.source = :source and s.item_from is not null
      join retoma.jobs j on j.run = :run and j.step = s.item_from and j.item = i.item
     where r.id = :run and j.input is not null
     limit 1) v on true
  left join lateral (
    select j.output, j.author
      from retoma.runs r
      join retoma.steps s on s.version = r.version and s.source = :source and s.each and not s.internal
      join retoma.jobs j on j.run = :run and j.step = s.step and j.item = i.item
     where r.id = :run and j.state = 'succeeded' and i.state = 'succeeded'
     order by s.position desc, j.revision desc
     limit 1) o on true
  left join errors e on e.item = i.item and e.revision = i.revision
 order by i.position;

-- name: list_item_keys
-- The keys of a page of items, whatever their state.
select j.item
  from retoma.runs r
  join retoma.steps s on s.version = r.version and s.source = :source and s.each and not s.internal
  join retoma.jobs j on j.run = :run and j.step = s.step
 where r.id = :run
 group by j.item
having min(j.position) > :after
 order by min(j.position)
 limit :limit;

-- name: count_items_by_state
-- How many items are in which state, and the last that became final.
select i.state, count(*)::int as items, max(i.ended_at) filter (where i.state <> 'cancelled') as last_at,
       (array_agg(i.item order by i.ended_at desc) filter (where i.ended_at is not null and i.state <> 'cancelled'))[1] as last_item
  from retoma.item_states(:run, :source) i
 group by i.state;

-- name: count_items_by_code
-- How many items failed with which code, the most frequent first.
select coalesce(i.code, 'ERROR') as code, count(*)::int as items
  from retoma.item_states(:run, :source) i
 where i.state = 'failed'
 group by 1
 order by items desc, code;
