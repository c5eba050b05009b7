-- Adds recovery codes of the second factor, and lets nobody change the audit log. Existing data does not change.

-- Codes for a person who has lost the second factor. Each works once. Only their digests are stored.
create table retoma.recovery_codes (
  person int not null references retoma.people,
  digest bytea not null,
  created_at timestamptz not null,
  used_at timestamptz,
  primary key (person, digest)
);

-- The id that the writer chose: an entry that is written again after a lost answer is the same entry.
alter table retoma.audit_log add column entry uuid not null;
create unique index one_row_per_audit_entry on retoma.audit_log (entry);
create index audit_log_by_object on retoma.audit_log (object_kind, object_id, id);
create index audit_log_by_actor on retoma.audit_log (actor_name, id);
create index audit_log_by_tenant on retoma.audit_log (tenant, id);

create function retoma.refuse_audit_change() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and current_setting('retoma.deletes_old_audit_entries', true) = 'on' then
    return old;
  end if;
  raise exception 'the audit log is append-only' using hint = 'delete old entries with `retoma audit delete`';
end $$;

create trigger audit_log_is_append_only
  before update or delete on retoma.audit_log for each row
  execute function retoma.refuse_audit_change();

-- A key may read the audit log.
alter table retoma.api_keys drop constraint scopes_are_known;
alter table retoma.api_keys add constraint scopes_are_known check (scopes <@ array[
  'runs:read', 'runs:write', 'pools:read', 'pools:write', 'deliveries:read', 'deliveries:write', 'metrics:read', 'reviews:write',
  'people:write', 'audit:read', 'admin']);
