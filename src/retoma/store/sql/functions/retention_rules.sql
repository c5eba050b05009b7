-- How a run ended, for the rules: runs with failures are kept longer.
create or replace function retoma.final_class(p_state retoma.run_state) returns text immutable language sql as $$
  select case when p_state in ('failed', 'completed_with_errors') then 'failed' else 'ended' end;
$$;

-- How long the runs of a pipeline are kept, by how they ended: those of all tenants (null), and those of each tenant with a rule of its own.
-- A null `keep` is for ever.
create or replace function retoma.list_keeps(p_pipeline text, p_declared interval, p_default interval, p_default_failed interval)
returns table (tenant int, final_class text, keep interval) stable language sql as $$
  select o.tenant, c.final_class, k.keep
    from (values ('ended'), ('failed')) as c (final_class)
   cross join (select null::int as tenant
                union
               select r.tenant from retoma.retention_rules r where r.pipeline is null or r.pipeline = p_pipeline) o
   cross join lateral (
     select r.keep, case when r.pipeline is not null and r.tenant is not null then 1 when r.pipeline is not null then 2
                         when r.tenant is not null then 3 else 5 end as place
       from retoma.retention_rules r
      where r.final_class = c.final_class and (r.pipeline is null or r.pipeline = p_pipeline) and (r.tenant is null or r.tenant = o.tenant)
      union all
     select p_declared, 4 where p_declared is not null
      union all
     select case c.final_class when 'failed' then p_default_failed else p_default end, 6
      order by place
      limit 1) k;
$$;

-- The next runs of a version, after `p_after`, that have been kept long enough by the rules, and how many were checked. Ids are in the
-- order of time, so those that are too young are not read.
create or replace function retoma.list_expired_runs(
  p_version int, p_after uuid, p_limit int, p_default interval, p_default_failed interval)
returns table (run uuid, is_expired boolean) stable language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_keeps jsonb;                           -- by tenant (`*`: the others) and class, in seconds; null: for ever
  v_youngest uuid;
begin
  select jsonb_object_agg(coalesce(k.tenant::text, '*') || ' ' || k.final_class, extract(epoch from k.keep)),
         retoma.first_run_id(v_now - min(k.keep))
    into v_keeps, v_youngest
    from retoma.versions v, retoma.list_keeps(v.pipeline, v.retention, p_default, p_default_failed) k
   where v.id = p_version;
  if v_youngest is null then
    return;
  end if;
  return query
  select r.id,
         -- From its end, or that of its last delivery.
         case when r.ended_at <= v_now - k.keep
              then coalesce((select max(d.ended_at) from retoma.deliveries d where d.run = r.id) <= v_now - k.keep, true)
              else false end
    from retoma.runs r
   cross join lateral (select r.tenant || ' ' || retoma.final_class(r.state) as of_tenant, '* ' || retoma.final_class(r.state) as of_others) n
   cross join lateral (
     select make_interval(secs => (v_keeps ->> case when v_keeps ? n.of_tenant then n.of_tenant else n.of_others end)::float) as keep) k
   where r.version = p_version and r.id > coalesce(p_after, '00000000-0000-0000-0000-000000000000') and r.id < v_youngest
   order by r.id
   limit p_limit;
end $$;

-- The lowest id that a run created at this time can have.
create or replace function retoma.first_run_id(p_at timestamptz) returns uuid immutable language sql as $$
  select rpad(lpad(to_hex(greatest((extract(epoch from p_at) * 1000)::bigint, 0)), 12, '0'), 32, '0')::uuid;
$$;

-- The same by the clock of the machines, which ids follow even if the time of the database is set.
create or replace function retoma.first_run_id_since(p_at timestamptz) returns uuid stable language sql as $$
  select retoma.first_run_id(p_at + (statement_timestamp() - retoma.now()));
$$;
