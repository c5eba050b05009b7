-- Adds to the events of other systems the tenant that they are about, so they can be erased with it. Existing events have none.

alter table retoma.inbound_events add column tenant int references retoma.tenants;  -- null: of no tenant, or not known

create index inbound_events_by_tenant on retoma.inbound_events (tenant) where tenant is not null;
