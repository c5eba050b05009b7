-- name: list_reviewers
-- What each person decided since then, and how many open reviews are assigned to or claimed by them. The row without a name
-- has all decisions together.
with decided as (
  select coalesce(v.decided_person, 0) as person, coalesce((select p.name from retoma.people p where p.id = v.decided_person), v.decided_by) as reviewer,
         v.state, v.wait,
         v.decided_at <= coalesce(v.due_at, v.opened_at + :target::interval) as in_time,
         v.is_first, date_trunc('hour', v.decided_at) as hour
    from retoma.list_decisions(:since, :tenants, :pipelines) v
), decisions as (
  select coalesce(d.person, 0) as person, coalesce(d.reviewer, '') as reviewer, grouping(d.reviewer) = 1 as is_total, count(*)::int as decided,
         avg(wait)::float as mean_wait,
         percentile_cont(0.5) within group (order by wait)::float as median_wait, (count(*) filter (where in_time))::int as in_time,
         (count(*) filter (where is_first))::int as first_decided,
         (count(*) filter (where is_first and state = 'approved'))::int as approved_at_once,
         count(distinct (person, reviewer, hour))::int as active_hours
    from decided d
   group by grouping sets ((d.person, d.reviewer), ())
), loads as (
  select coalesce(h.person, 0) as person, coalesce(h.reviewer, '') as reviewer, grouping(h.reviewer) = 1 as is_total, count(*)::int as open
    from (select coalesce(case when v.claimed_until > retoma.now() then v.claimed_person else p.id end, 0) as person,
                 coalesce(case when v.claimed_until > retoma.now() then v.claimed_by end, p.name, v.assignee, '') as reviewer
            from retoma.reviews v
            join retoma.versions g on g.id = v.version
            left join retoma.people p on p.id = retoma.assigned_person(v)
           where v.state = 'open' and (:tenants::int[] is null or v.tenant = any (:tenants))
             and (:pipelines::text[] is null or g.pipeline = any (:pipelines))) h
   group by grouping sets ((h.person, h.reviewer), ())
)
select case when is_total then null else reviewer end as reviewer, coalesce(d.decided, 0) as decided, d.mean_wait, d.median_wait,
       coalesce(d.in_time, 0) as in_time, coalesce(d.first_decided, 0) as first_decided,
       coalesce(d.approved_at_once, 0) as approved_at_once, coalesce(d.active_hours, 0) as active_hours, coalesce(l.open, 0) as open
  from decisions d
  full join loads l using (is_total, person, reviewer)
 where is_total or reviewer <> ''
 order by is_total desc, decided desc, reviewer;

-- name: list_review_days
-- The decisions of each day since then, by the calendar of a time zone.
select (v.decided_at at time zone :zone)::date as day, count(*)::int as decided,
       percentile_cont(0.5) within group (order by v.wait)::float as median_wait,
       (count(*) filter (where v.is_first))::int as first_decided,
       (count(*) filter (where v.is_first and v.state = 'approved'))::int as approved_at_once
  from retoma.list_decisions(:since, :tenants, :pipelines) v
 group by 1
 order by 1;

-- name: list_review_steps
-- The decisions at each step since then, for the metrics.
select v.pipeline, v.step, count(*)::int as decided,
       percentile_cont(0.5) within group (order by v.wait)::float as median_wait,
       percentile_cont(0.95) within group (order by v.wait)::float as p95_wait,
       (count(*) filter (where v.is_first))::int as first_decided,
       (count(*) filter (where v.is_first and v.state = 'approved'))::int as approved_at_once
  from retoma.list_decisions(retoma.now() - :window::interval, null, null) v
 group by 1, 2
 order by 1, 2;
