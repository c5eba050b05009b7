-- name: list_reviews
-- The oldest first, after the last one of the previous page.
select v.id, v.run, r.title as run_title, t.name as tenant, g.pipeline, v.step, v.item, v.revision, v.planned, v.state::text as state,
       v.reason::text as reason, v.budget, v.opened_at, v.due_at, v.expires_at, v.assignee,
       case when v.claimed_until > retoma.now() then v.claimed_by end as claimed_by,
       v.decided_by, v.via, v.decided_at, v.effective_at, v.applied_at, v.value::text as value, v.notes,
       v.feedback::text as feedback, v.back_to, v.back_items,
       (select s.review::text from retoma.steps s where s.version = v.version and s.step = v.step) as policy,
       retoma.count_sent_back(v) as times_sent_back, retoma.rejection_ends_run(v) as rejection_ends_run
  from retoma.reviews v
  join retoma.tenants t on t.id = v.tenant
  join retoma.versions g on g.id = v.version
  left join retoma.runs r on r.id = v.run
 where (:tenant::int is null or v.tenant = :tenant)
   and (:tenants::int[] is null or v.tenant = any (:tenants))
   and (:ids::uuid[] is null or v.id = any (:ids))
   and (:run::uuid is null or v.run = :run)
   and (:pipelines::text[] is null or g.pipeline = any (:pipelines))
   and (:step::text is null or v.step = :step)
   and (:assignee::text is null or v.assignee = :assignee)
   and (:states::text[] is null or v.state::text = any (:states))
   and (:after_at::timestamptz is null or (v.opened_at, v.id) > (:after_at, :after_id::uuid))
 order by v.opened_at, v.id
 limit :limit;

-- name: find_reviews_by_id_range
-- The newest reviews whose ids are in this range.
select v.id from retoma.reviews v
 where v.id between :first and :last and (:tenants::int[] is null or v.tenant = any (:tenants))
 order by v.opened_at desc
 limit :limit;

-- name: count_open_reviews
-- How many reviews wait for people at each step, how many of them are overdue, and since when the oldest.
select g.pipeline, v.step, count(*)::int as open, (count(*) filter (where v.due_at < retoma.now()))::int as overdue,
       min(v.opened_at) as oldest_at
  from retoma.reviews v
  join retoma.versions g on g.id = v.version
 where v.state = 'open' and (:tenants::int[] is null or v.tenant = any (:tenants))
 group by 1, 2
 order by 1, 2;

-- name: list_review_subjects
-- The subjects of a review: the results that a person reviews, as they are now.
select d.from_step as step, p.output::text as output, p.revision
  from retoma.reviews v
  join retoma.reads d on d.version = v.version and d.step = v.step
  cross join lateral (
    select j.output, j.revision from retoma.jobs j
     where j.run = v.run and j.step = d.from_step
       and j.item = case d.what when 'result of the item' then v.item else '' end and j.revision <= v.revision
     order by j.revision desc limit 1) p
 where v.id = :review
 order by d.position;

-- name: list_review_comments
-- The comments with which the work of a run was sent back before this revision, the oldest first.
select v.id as review, v.step, v.revision, (c.number - 1)::int as position, c.comment ->> 'text' as text,
       (c.comment ->> 'at')::float as at, (c.comment ->> 'to')::float as to, coalesce(c.comment ->> 'quote', '') as quote,
       v.decided_by as written_by, v.decided_at as written_at, r.resolved_by, r.resolved_at
  from retoma.reviews v
 cross join lateral json_array_elements(v.feedback -> 'comments') with ordinality c (comment, number)
  left join retoma.comment_resolutions r on r.review = v.id and r.position = c.number - 1
 where v.run = :run and v.item = any (array['', :item]) and v.revision < :revision
   and v.state = 'sent_back' and json_typeof(v.feedback -> 'comments') = 'array'
 order by v.decided_at, v.id, c.number
 limit :limit;

-- name: resolve_comment
-- Returns whether the review was sent back with such a comment.
insert into retoma.comment_resolutions (review, position, resolved_by, resolved_at)
select v.id, :position, :by, retoma.now()
  from retoma.reviews v
 where v.id = :review and v.state = 'sent_back' and json_array_length(v.feedback -> 'comments') > :position and :position >= 0
    on conflict (review, position) do update set resolved_by = excluded.resolved_by
returning review;

-- name: reopen_comment
-- A comment that is not resolved is left as it is.
delete from retoma.comment_resolutions where review = :review and position = :position
returning review;

-- name: decide_review
select retoma.decide_review_as(:review, :tenant, :state::retoma.review_state, :by, :via, :seen, :key, :value::json, :notes,
                               :feedback::json, :to, :items::text[], :undo::interval, :person) as outcome;

-- name: undo_decision
select retoma.undo_decision(:review, :tenant, :by) as undone;

-- name: claim_review
-- Claim a review for this person, unless another has claimed it. Returns who has, and whether it is this person.
with claimed as (
  update retoma.reviews v
     set claimed_by = :by, claimed_person = :person, claimed_until = retoma.now() + :lasts::interval
   where v.id = :review and (:tenant::int is null or v.tenant = :tenant) and v.state = 'open'
     and (retoma.is_same_person(v.claimed_person, v.claimed_by, :person, :by) or v.claimed_until is null or v.claimed_until <= retoma.now())
  returning v.claimed_by
)
select coalesce((select claimed_by from claimed),
                (select v.claimed_by from retoma.reviews v where v.id = :review and v.claimed_until > retoma.now())) as by,
       exists (select from claimed) as is_own;

-- name: assign_review
with assigned as (
  update retoma.reviews v set assignee = :assignee, assigned_person = :person, assigned_role = :role
   where v.id = :review and (:tenant::int is null or v.tenant = :tenant) and v.state = 'open'
  returning v.*
)
select retoma.log_review_event(retoma.now(), a::retoma.reviews, jsonb_build_object('what', 'assigned', 'by', :by::text, 'to', :assignee::text)),
       retoma.notify_of_review(retoma.now(), a::retoma.reviews, 'assigned')
  from assigned a;

-- name: get_review_metrics
-- The outcomes of a pipeline's reviews since then.
select count(*) filter (where n.state in ('approved', 'sent_back', 'rejected'))::int as decided,
       count(*) filter (where n.is_first and n.state = 'approved')::int as approved_at_once,
       count(*) filter (where n.is_first and n.state in ('approved', 'sent_back', 'rejected'))::int as first_decided,
       avg(extract(epoch from n.decided_at - n.opened_at)) filter (where n.decided_at is not null)::float as mean_wait
  from (select v.state, v.opened_at, v.decided_at, retoma.is_first_review(v) as is_first
          from retoma.reviews v
          join retoma.versions g on g.id = v.version
         where v.planned and g.pipeline = :pipeline and v.opened_at >= :since
           and (:tenants::int[] is null or v.tenant = any (:tenants))
         union all
        select v.state, v.opened_at, v.decided_at, v.is_first
          from retoma.removed_decisions v
         where v.planned and v.pipeline = :pipeline and v.decided_at >= :since and v.opened_at >= :since
           and (:tenants::int[] is null or v.tenant = any (:tenants))) n;