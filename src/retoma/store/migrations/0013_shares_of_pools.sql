-- Adds to pools how many of their slots one tenant may hold.

alter table retoma.pools
  add per_tenant int,
  add constraint a_share_is_above_zero check (per_tenant > 0);

drop function if exists retoma.tenants_for_pool(text, int, int);
