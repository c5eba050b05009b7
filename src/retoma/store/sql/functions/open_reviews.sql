-- Open the review of a job when it becomes ready, in the same transaction, and park it. If its subject is unchanged since the
-- last decision, the job continues with that decision.
create or replace function retoma.park_for_review() returns trigger language plpgsql as $$
begin
  new.review_due := false;
  if new.revision = 1 or retoma.reusable_result(new.run, new.step, new.item, new.revision) is null then
    new.state := 'parked';
    new.worker := 0;
    perform retoma.create_review(retoma.now(), new, null);
  end if;
  return new;
end $$;

create or replace trigger review_jobs_are_parked
  before insert or update of state on retoma.jobs for each row
  when (new.review_due and new.state = 'ready')
  execute function retoma.park_for_review();

-- Open a review of a job that was just parked. With a reason a step asked for help; without one its pipeline planned the
-- review.
create or replace function retoma.create_review(p_now timestamptz, p_job retoma.jobs, p_reason json) returns void language sql as $$
  with held as (
    select s.review from retoma.steps s where s.version = p_job.version and s.step = p_job.step
  ), opened as (
    insert into retoma.reviews (run, step, item, revision, version, tenant, planned, reason, opened_at, due_at, remind_at,
                                escalate_at, expires_at, assignee, next_at, budget)
    select p_job.run, p_job.step, p_job.item, p_job.revision, p_job.version, p_job.tenant, p_reason is null, p_reason, p_now,
           p_now + retoma.json_seconds(h.review -> 'due'), p_now + retoma.json_seconds(h.review -> 'remind'),
           p_now + retoma.json_seconds(h.review -> 'escalate'), p_now + retoma.json_seconds(h.review -> 'expires'),
           h.review ->> 'assignee',
           -- Another job may end at the same time without seeing this review: refresh the run's state soon.
           p_now + least(interval '1 second', retoma.json_seconds(h.review -> 'remind'), retoma.json_seconds(h.review -> 'escalate'),
                         retoma.json_seconds(h.review -> 'expires')),
           (p_reason #>> '{budget,id}')::int
      from held h
    returning *
  ), logged as (
    insert into retoma.events (run, at, revision, kind, step, item, data)
    select o.run, p_now, o.revision, 'review', o.step, o.item,
           json_build_object('review', o.id, 'what', 'opened', 'planned', o.planned, 'code', o.reason ->> 'code')
      from opened o
  )
  select retoma.queue_webhook_event(p_now, o.run, o.tenant, 'review.opened', json_build_object('review', o.id)),
         retoma.notify_of_review(p_now, o::retoma.reviews, 'opened')
    from opened o;
$$;

create or replace function retoma.json_seconds(p_value json) returns interval immutable language sql as $$
  select make_interval(secs => (p_value #>> '{}')::float);
$$;

create or replace function retoma.log_review_event(p_now timestamptz, p_review retoma.reviews, p_data jsonb) returns void language sql as $$
  insert into retoma.events (run, at, revision, kind, step, item, data)
  values (p_review.run, p_now, p_review.revision, 'review', p_review.step, p_review.item,
          (jsonb_build_object('review', p_review.id) || jsonb_strip_nulls(p_data))::json);
$$;
