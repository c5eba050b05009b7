-- Write an entry of the audit log. The tenant is that of its object, if the caller names none. An entry about a person belongs to
-- the tenants in which the person has a role now. A second call is ignored.
create or replace function retoma.record_audit_entry(
  p_entry uuid, p_actor_kind text, p_actor_id text, p_actor_name text, p_address text, p_action text, p_object_kind text,
  p_object_id text, p_tenant int, p_before json, p_after json) returns void language sql as $$
  insert into retoma.audit_log (entry, at, actor_kind, actor_id, actor_name, address, action, object_kind, object_id, tenant, person_tenants,
                                before, after)
  values (p_entry, retoma.now(), p_actor_kind, p_actor_id, p_actor_name, p_address, p_action, p_object_kind, p_object_id,
          coalesce(p_tenant, retoma.find_audit_tenant(p_object_kind, p_object_id)),
          case when p_tenant is null then retoma.find_tenants_of_person(p_object_kind, p_object_id) end, p_before, p_after)
      on conflict (entry) do nothing;
$$;

-- The tenant that an object belongs to, or null if it belongs to none.
create or replace function retoma.find_audit_tenant(p_object_kind text, p_object_id text) returns int stable language sql as $$
  select case p_object_kind
    when 'run' then (select r.tenant from retoma.runs r where r.id = p_object_id::uuid)
    when 'review' then (select r.tenant from retoma.reviews r where r.id = p_object_id::uuid)
    when 'delivery' then (select d.tenant from retoma.deliveries d where d.id = p_object_id::uuid)
    when 'endpoint' then (select nullif(e.tenant, -1) from retoma.endpoints e where e.id = p_object_id::int)
    when 'schedule' then (select s.tenant from retoma.schedules s where s.id = p_object_id::int)
    when 'bulk_action' then (select b.tenant from retoma.bulk_actions b where b.id = p_object_id::uuid)
    when 'api_key' then (select k.tenant from retoma.api_keys k where k.id = p_object_id::int)
    when 'tenant' then (select t.id from retoma.tenants t where t.name = p_object_id)
  end;
$$;

-- The tenants in which a person has a role, or null if there is none or it is no person.
create or replace function retoma.find_tenants_of_person(p_object_kind text, p_object_id text) returns int[] stable language sql as $$
  select nullif(array_agg(r.tenant order by r.tenant) filter (where r.tenant is not null), '{}')
    from retoma.person_roles r
   where r.person = case when p_object_kind = 'person' then p_object_id::int end;
$$;

-- Delete the entries before a time, and return how many there were. Only this function and `delete_old_rows` delete entries.
create or replace function retoma.delete_audit_entries(p_before timestamptz) returns bigint language plpgsql as $$
declare
  v_count bigint;
begin
  perform set_config('retoma.deletes_old_audit_entries', 'on', true);
  delete from retoma.audit_log where at < p_before;
  get diagnostics v_count = row_count;
  perform set_config('retoma.deletes_old_audit_entries', 'off', true);
  return v_count;
end $$;
