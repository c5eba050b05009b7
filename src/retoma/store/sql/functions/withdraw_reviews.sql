-- Withdraw the reviews of these jobs.
create or replace function retoma.withdraw_reviews(p_now timestamptz, p_jobs retoma.job_key[]) returns void language sql as $$
  with withdrawn as (
    update retoma.reviews v
       set state = 'withdrawn', applied_at = p_now, ended_at = coalesce(v.ended_at, p_now), next_at = null
     -- Job by job, whatever the planner expects of the number of open reviews.
     where v.id = any (array(
             select r.id from unnest(p_jobs) j,
                    lateral (select o.id from retoma.reviews o
                              where o.run = j.run and o.step = j.step and o.item = j.item and o.revision = j.revision
                                and o.applied_at is null offset 0) r))
    returning v.*
  )
  select retoma.log_review_event(p_now, w::retoma.reviews, '{"what": "withdrawn"}') from withdrawn w;
$$;

-- Cancel jobs that wait for a review, and withdraw their reviews.
create or replace function retoma.cancel_review_jobs(p_now timestamptz, p_jobs retoma.job_key[], p_code text) returns void language plpgsql as $$
begin
  update retoma.jobs j set state = 'cancelled', ended_at = p_now, code = p_code
    from unnest(p_jobs) h
   where j.run = h.run and j.step = h.step and j.item = h.item and j.revision = h.revision and j.state = 'parked';
  perform retoma.withdraw_reviews(p_now, p_jobs);
  perform retoma.abandon_effects(p_now, p_now, p_jobs);
end $$;

-- Whether a job waits for a person, and not for external work.
create or replace function retoma.waits_for_review(p_job retoma.jobs) returns boolean stable language sql as $$
  select p_job.state = 'parked'
     and exists (select from retoma.reviews v
                  where v.run = p_job.run and v.step = p_job.step and v.item = p_job.item and v.revision = p_job.revision)
     and not exists (select from retoma.external_work o
                      where o.run = p_job.run and o.step = p_job.step and o.item = p_job.item and o.revision = p_job.revision
                        and o.ended_at is null);
$$;
