-- name: list_open
-- The open reviews of a filter in the order of the work: kinds as `kinds` lists them (pipeline, line break, step), the most urgent
-- first, then the oldest. `after` is a review of any state: those that come before it are left out.
select v.id, v.run, r.title, case when r.title is null then r.input::text end as input, t.name as tenant, g.pipeline, v.step,
       v.item, v.revision, v.planned, v.state::text as state, v.opened_at, v.due_at, v.assignee,
       case when v.claimed_until > retoma.now() then v.claimed_by end as claimed_by, v.decided_by, v.decided_at,
       (select (s.review ->> 'form')::boolean from retoma.steps s where s.version = v.version and s.step = v.step) as has_form
  from retoma.reviews v
  join retoma.tenants t on t.id = v.tenant
  join retoma.versions g on g.id = v.version
  left join retoma.runs r on r.id = v.run
 where v.state = 'open'
   and (:tenants::int[] is null or v.tenant = any (:tenants))
   and (:pipelines::text[] is null or g.pipeline = any (:pipelines))
   and (:step::text is null or v.step = :step)
   and (:assignees::text[] is null or retoma.is_assigned(v, :assignees, :person))
   and (:title::text is null or position(lower(:title) in lower(coalesce(r.title, r.input::text))) > 0)
   and (:overdue::boolean is false or v.due_at < retoma.now())
   and (:after::uuid is null
        or (coalesce(array_position(:kinds::text[], g.pipeline || chr(10) || v.step), 1000000), g.pipeline, v.step,
            coalesce(v.due_at, 'infinity'), v.opened_at, v.id)
         > (select coalesce(array_position(:kinds::text[], ag.pipeline || chr(10) || a.step), 1000000), ag.pipeline, a.step,
                   coalesce(a.due_at, 'infinity'), a.opened_at, a.id
              from retoma.reviews a join retoma.versions ag on ag.id = a.version
             where a.id = :after))
 order by array_position(:kinds::text[], g.pipeline || chr(10) || v.step), g.pipeline, v.step, v.due_at, v.opened_at, v.id
offset :offset limit :limit;

-- name: list_ended
-- The reviews of a filter that are in one of these states, the last ones first.
select v.id, v.run, r.title, case when r.title is null then r.input::text end as input, t.name as tenant, g.pipeline, v.step,
       v.item, v.revision, v.planned, v.state::text as state, v.opened_at, v.due_at, v.assignee, null::text as claimed_by,
       v.decided_by, coalesce(v.decided_at, v.ended_at) as decided_at, false as has_form
  from retoma.reviews v
  join retoma.tenants t on t.id = v.tenant
  join retoma.versions g on g.id = v.version
  left join retoma.runs r on r.id = v.run
 where v.ended_at is not null
   and v.state::text = any (:states)
   and (:tenants::int[] is null or v.tenant = any (:tenants))
   and (:pipelines::text[] is null or g.pipeline = any (:pipelines))
   and (:step::text is null or v.step = :step)
   and (:assignees::text[] is null or retoma.is_assigned(v, :assignees, :person))
   and (:title::text is null or position(lower(:title) in lower(coalesce(r.title, r.input::text))) > 0)
 order by v.ended_at desc, v.id
offset :offset limit :limit;

-- name: count_open
-- How many open reviews there are of each kind, tenant and assignee, how many of them are overdue, and since when the oldest.
select g.pipeline, v.step, t.name as tenant, v.assignee, v.assigned_person, count(*)::int as open,
       (count(*) filter (where v.due_at < retoma.now()))::int as overdue, min(v.opened_at) as oldest_at
  from retoma.reviews v
  join retoma.tenants t on t.id = v.tenant
  join retoma.versions g on g.id = v.version
 where v.state = 'open'
   and (:tenants::int[] is null or v.tenant = any (:tenants))
   and (:title::text is null or exists (select from retoma.runs r where r.id = v.run and position(lower(:title) in lower(coalesce(r.title, r.input::text))) > 0))
 group by 1, 2, 3, 4, 5;

-- name: list_undoable
-- The decisions of a person that have not taken effect, the last one first.
select v.id, v.run, r.title, case when r.title is null then r.input::text end as input, t.name as tenant, g.pipeline, v.step,
       v.item, v.revision, v.planned, v.state::text as state, v.opened_at, v.due_at, v.assignee, null::text as claimed_by,
       v.decided_by, v.decided_at, false as has_form, v.effective_at, v.decision_key
  from retoma.reviews v
  join retoma.tenants t on t.id = v.tenant
  join retoma.versions g on g.id = v.version
  left join retoma.runs r on r.id = v.run
 where v.next_at > retoma.now()
   and v.state in ('approved', 'sent_back', 'rejected')
   and v.applied_at is null
   and retoma.is_same_person(v.decided_person, v.decided_by, :person, :by)
   and v.via = 'page'
   and (:tenants::int[] is null or v.tenant = any (:tenants))
 order by v.decided_at desc, v.id
 limit :limit;

-- name: save_draft
-- Keep what a person has typed into a review. Drafts that nobody has touched for 30 days are deleted.
with old as (
  delete from retoma.review_drafts where saved_at < retoma.now() - interval '30 days'
)
insert into retoma.review_drafts (review, person, draft, saved_at)
values (:review, :person, :draft::json, retoma.now())
    on conflict (review, person) do update set draft = excluded.draft, saved_at = excluded.saved_at;

-- name: get_draft
select d.draft::text as draft from retoma.review_drafts d where d.review = :review and d.person = :person;

-- name: save_batch
with old as (
  delete from retoma.review_batches where created_at < retoma.now() - interval '30 days'
)
insert into retoma.review_batches (id, person, created_at, outcomes)
values (:batch, :person, retoma.now(), :outcomes::json)
    on conflict (id) do nothing;

-- name: get_batch
select b.outcomes::text as outcomes from retoma.review_batches b where b.id = :batch and b.person = :person;

-- name: save_settings
insert into retoma.viewer_settings (person, settings, saved_at)
values (:person, :settings::json, retoma.now())
    on conflict (person) do update set settings = excluded.settings, saved_at = excluded.saved_at;

-- name: get_settings
select s.settings::text as settings from retoma.viewer_settings s where s.person = :person;
