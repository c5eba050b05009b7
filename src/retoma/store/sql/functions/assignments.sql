-- Whether a review is assigned to one of these names, where empty text stands for nobody, or to this person. With a person, the names
-- are those that stand for the same one: a namesake's reviews are left out.
create or replace function retoma.is_assigned(p_review retoma.reviews, p_assignees text[], p_person int)
returns boolean immutable language sql as $$
  select case when p_person is not null and p_review.assigned_person is not null then p_review.assigned_person = p_person
              else coalesce(p_review.assignee, '') = any (p_assignees) end;
$$;

-- Show the new name of a person on open reviews. What was decided keeps the name of that time.
create or replace function retoma.rename_person(p_person int, p_name text) returns void language sql as $$
  update retoma.reviews v
     set assignee = case when v.assigned_person = p_person then p_name else v.assignee end,
         claimed_by = case when v.claimed_person = p_person then p_name else v.claimed_by end
   where v.state = 'open' and (v.assigned_person = p_person or v.claimed_person = p_person);
$$;
