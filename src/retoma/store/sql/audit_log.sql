-- name: record_audit_entry
select retoma.record_audit_entry(:entry, :actor_kind, :actor_id, :actor_name, :address, :action, :object_kind, :object_id, :tenant,
                                 :before, :after);

-- name: list_audit_entries
-- The newest first. With tenants, their entries and those about people who had a role there then.
select a.id, a.at, a.actor_kind, a.actor_id, a.actor_name, a.address, a.action, a.object_kind, a.object_id, t.name as tenant,
       a.before::text as before, a.after::text as after
  from retoma.audit_log a
  left join retoma.tenants t on t.id = a.tenant
 where (:tenants::int[] is null or a.tenant = any(:tenants) or a.person_tenants && :tenants)
   and (:actor::text is null or a.actor_name = :actor)
   and (:action::text is null or a.action = :action or starts_with(a.action, :action || '.'))
   and (:object_kind::text is null or a.object_kind = :object_kind)
   and (:object_id::text is null or a.object_id = :object_id)
   and (:since::timestamptz is null or a.at >= :since)
   and (:until::timestamptz is null or a.at < :until)
   and (:before_id::bigint is null or a.id < :before_id)
 order by a.id desc
 limit :limit;

-- name: list_audit_actors
-- The names of the actors of the newest entries, for a filter.
select distinct recent.actor_name
  from (select a.actor_name
          from retoma.audit_log a
         where :tenants::int[] is null or a.tenant = any(:tenants) or a.person_tenants && :tenants
         order by a.id desc
         limit 10000) recent
 order by 1
 limit :limit;

-- name: delete_audit_entries
select retoma.delete_audit_entries(:before) as entries;
