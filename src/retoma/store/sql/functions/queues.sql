-- Those of these queues that are not paused, in the same order.
create or replace function retoma.open_queues(p_queues text[]) returns text[] stable language sql as $$
  select coalesce(array_agg(w.queue order by w.ordinal), '{}')
    from unnest(p_queues) with ordinality as w (queue, ordinal)
   where not retoma.is_paused(w.queue);
$$;

create or replace function retoma.is_paused(p_queue text) returns boolean stable language sql as $$
  select exists (select from retoma.queues q where q.name = p_queue and q.paused_at is not null);
$$;

create or replace function retoma.limited_queues(p_queues text[]) returns text[] stable language sql as $$
  select array(select q.name from retoma.queues q where q.name = any (p_queues) and q.concurrency is not null);
$$;

-- Claims from one limited queue wait for each other.
create or replace function retoma.lock_queues(p_queues text[]) returns void language sql as $$
  select from retoma.queues where name = any (p_queues) order by name for update;
$$;

-- Whether the claim that got this slot is still running.
create or replace function retoma.is_slot_held(p_slot retoma.queue_slots) returns boolean stable language sql as $$
  select exists (select from retoma.jobs j
                  where j.run = p_slot.run and j.step = p_slot.step and j.item = p_slot.item and j.revision = p_slot.revision
                    and j.fence = p_slot.fence and j.state = 'running');
$$;

-- How many more jobs of a queue may start. The caller has locked it. Null: any number, because its limit was just removed.
create or replace function retoma.free_queue_slots(p_queue text) returns int language plpgsql as $$
begin
  delete from retoma.queue_slots s where s.queue = p_queue and not retoma.is_slot_held(s);
  return (select q.concurrency from retoma.queues q where q.name = p_queue)
       - (select count(*) from retoma.queue_slots s where s.queue = p_queue);
end $$;

-- Claim from each limited queue as many jobs as its limit allows, and from the others together. The order of the queues decides
-- which come first. The caller has locked the limited queues.
create or replace function retoma.claim_within_limits(
  p_link retoma.worker_links, p_now timestamptz, p_queues text[], p_limited text[], p_versions int[], p_after int, p_limit int,
  p_suspect boolean)
returns setof retoma.claimed_job language plpgsql as $$
declare
  v_unlimited text[] := array(select queue from unnest(p_queues) with ordinality as w (queue, ordinal)
                               where queue <> all (p_limited) order by ordinal);
  v_left int := p_limit;
  v_suspect boolean := p_suspect;
  v_link retoma.worker_links;
  v_queue text;
  v_is_limited boolean;
  v_queues text[];
  v_free int;
  v_job retoma.claimed_job;
begin
  foreach v_queue in array p_queues loop
    v_is_limited := v_queue = any (p_limited);
    continue when not v_is_limited and v_queue <> v_unlimited[1];
    v_link := p_link;
    v_queues := v_unlimited;
    v_free := v_left;
    if v_is_limited then
      v_queues := array[v_queue];
      v_free := least(v_left, retoma.free_queue_slots(v_queue));
      -- A link may remember ranks below which it found nothing while this queue was full.
      v_link.rescan_at := null;
    end if;
    continue when v_free <= 0;
    for v_job in
      select * from retoma.claim_for_link(v_link, p_now, v_queues, p_versions, p_after, v_free, v_suspect)
    loop
      v_left := v_left - (v_job.what = 'claimed')::int;
      v_suspect := v_suspect and coalesce(v_job.worker_deaths, 0) = 0;
      if v_is_limited and v_job.what = 'claimed' then
        insert into retoma.queue_slots (queue, run, step, item, revision, fence)
        values (v_queue, v_job.run, v_job.step, v_job.item, v_job.revision, v_job.fence);
      end if;
      return next v_job;
    end loop;
  end loop;
end $$;

-- Limit how many jobs of a queue run at once, or remove its limit (null). Jobs that are running count.
create or replace function retoma.limit_queue(p_queue text, p_concurrency int) returns void language plpgsql as $$
begin
  -- Every call of a worker writes its link first. Wait for the calls that do not know this limit, and let others wait for it.
  lock table retoma.worker_links in share row exclusive mode;
  delete from retoma.queue_slots where queue = p_queue;
  if p_concurrency is null then
    delete from retoma.queues where name = p_queue and paused_at is null;
    update retoma.queues set concurrency = null where name = p_queue;
    return;
  end if;
  insert into retoma.queues (name, concurrency) values (p_queue, p_concurrency)
      on conflict (name) do update set concurrency = excluded.concurrency;
  insert into retoma.queue_slots (queue, run, step, item, revision, fence)
  select j.queue, j.run, j.step, j.item, j.revision, j.fence from retoma.running_jobs() j where j.queue = p_queue;
end $$;
