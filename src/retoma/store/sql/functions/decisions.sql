-- The decisions of people since a time, those of removed runs included: `wait` in seconds, and whether it was the first review of a planned
-- step. Simple enough for the planner to inline.
create or replace function retoma.list_decisions(p_since timestamptz, p_tenants int[], p_pipelines text[])
returns table (decided_by text, decided_person int, state retoma.review_state, pipeline text, step text, opened_at timestamptz, due_at timestamptz,
               decided_at timestamptz, wait numeric, is_first boolean) stable language sql as $$
  select v.decided_by, v.decided_person, v.state, g.pipeline, v.step, v.opened_at, v.due_at, v.decided_at, extract(epoch from v.decided_at - v.opened_at),
         v.planned and retoma.is_first_review(v)
    from retoma.reviews v
    join retoma.versions g on g.id = v.version
   where v.decided_at >= p_since and v.state in ('approved', 'sent_back', 'rejected')
     and (p_tenants is null or v.tenant = any (p_tenants))
     and (p_pipelines is null or g.pipeline = any (p_pipelines))
   union all
  select v.decided_by, v.decided_person, v.state, v.pipeline, v.step, v.opened_at, v.due_at, v.decided_at, extract(epoch from v.decided_at - v.opened_at),
         v.planned and v.is_first
    from retoma.removed_decisions v
   where v.decided_at >= p_since and v.state in ('approved', 'sent_back', 'rejected')
     and (p_tenants is null or v.tenant = any (p_tenants))
     and (p_pipelines is null or v.pipeline = any (p_pipelines));
$$;
