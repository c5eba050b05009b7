-- Let nothing new start in these runs: what runs may end, what does not run is cancelled, but for what may go on outside:
-- that is tried again, to be found and ended there. The caller holds their locks (`lock_runs`) and closes them
-- (`close_runs`).
create or replace function retoma.halt(p_now timestamptz, p_runs uuid[], p_ends_as retoma.run_state)
returns void language plpgsql as $$
begin
  -- A job may be claimed, or be making its successor, in another transaction just now. Locking it waits for that
  -- one to commit, and only a new look shows what it left: look until there is nothing more.
  while exists (select from retoma.jobs
                 where run = any (p_runs) and state in ('waiting', 'ready', 'running', 'parked') and not ending) loop
    -- First what runs or may, and then what waits for it, each by key, as those do that end jobs.
    perform from retoma.jobs
      where run = any (p_runs) and state in ('running', 'parked', 'ready') and not ending
      order by run, step, item, revision for update;
    if exists (select from retoma.reviews v where v.run = any (p_runs)) then
      perform retoma.stop_asking(p_now, array_agg((j.run, j.step, j.item, j.revision)::retoma.handle), 'RUN_STOPPED')
         from retoma.jobs j where j.run = any (p_runs) and j.state = 'parked' and retoma.is_asking(j);
    end if;
    update retoma.jobs set ending = true
     where run = any (p_runs) and state in ('running', 'parked') and not ending;
    perform from retoma.jobs
      where run = any (p_runs) and state = 'waiting' and not ending
      order by run, step, item, revision for update;
    if exists (select from retoma.effects e where e.run = any (p_runs)) then
      update retoma.jobs j set ending = true, pool = null, ready_at = null
       where j.run = any (p_runs) and j.state = 'ready' and not j.ending and retoma.may_go_on_outside(j, p_now);
    end if;
    update retoma.jobs set state = 'cancelled', worker = 0, ready_at = null, ended_at = p_now, code = 'RUN_STOPPED'
     where run = any (p_runs) and state in ('waiting', 'ready') and not ending;
  end loop;
  if exists (select from retoma.holdings h where h.run = any (p_runs)) then
    perform retoma.release(array_agg((j.run, j.step, j.item, j.revision)::retoma.handle))
       from retoma.jobs j where j.run = any (p_runs) and j.state = 'cancelled';
  end if;
  -- What goes on outside is told to end by whoever looks next.
  update retoma.outside set next_at = p_now where run = any (p_runs) and ended_at is null;

  update retoma.runs
     set ends_as = p_ends_as,
         state = case when p_ends_as = 'cancelled' then 'cancelling' else state end
   where id = any (p_runs) and ended_at is null;
end $$;

-- End the stopping runs in which nothing lives any more.
create or replace function retoma.close_runs(p_now timestamptz, p_runs uuid[]) returns void language plpgsql as $$
declare
  v_closed uuid[];
begin
  -- The last two jobs of a run may end at once: the lock lets the second see the first.
  perform from retoma.runs where id = any (p_runs) order by id for update;
  with closed as (
    update retoma.runs r
       set state = case when r.ends_as not in ('completed', 'completed_with_errors') then r.ends_as
                        when retoma.has_failures(r.id) then 'completed_with_errors' else 'completed' end::retoma.run_state,
           ended_at = p_now
     where r.id = any (p_runs) and r.ends_as is not null and r.ended_at is null
       and not exists (select from retoma.jobs j where j.run = r.id and j.state in ('ready', 'running', 'parked'))
    returning r.id, r.revision, r.state
  ), told as (
    insert into retoma.events (run, at, revision, kind, data)
    select id, p_now, revision, 'end', json_build_object('state', state) from closed
  )
  select array_agg(id) into v_closed from closed;
  perform retoma.owe(p_now, array_agg(r.id), 'run.' || r.state)
     from retoma.runs r
    where r.id = any (v_closed) and retoma.has_receivers(r.id)
    group by r.state;
end $$;

-- Whether something failed that nobody has made good.
create or replace function retoma.has_failures(p_run uuid) returns boolean stable language plpgsql as $$
begin
  return exists (select from retoma.standing(p_run) s where s.state in ('failed', 'quarantined') and not retoma.is_made_good(s));
end $$;

-- Cancel a run. Gives back its state afterwards, or null if there is no such run of this tenant.
create or replace function retoma.cancel_run(p_run uuid, p_tenant int, p_by text) returns retoma.run_state
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_state retoma.run_state;
begin
  perform retoma.lock_runs('stop', array[p_run]);
  select state into v_state
    from retoma.runs where id = p_run and (p_tenant is null or tenant = p_tenant);
  if not found or v_state in ('completed', 'completed_with_errors', 'failed', 'rejected', 'cancelled', 'cancelling') then
    return v_state;
  end if;
  perform retoma.halt(v_now, array[p_run], 'cancelled');
  insert into retoma.events (run, at, revision, kind, data)
  select id, v_now, revision, 'act', json_build_object('act', 'cancel', 'by', p_by)
    from retoma.runs where id = p_run and ended_at is null;
  perform retoma.close_runs(v_now, array[p_run]);
  select state into v_state from retoma.runs where id = p_run;
  return v_state;
end $$;
