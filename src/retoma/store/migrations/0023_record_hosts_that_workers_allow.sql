-- Records which private hosts each worker may call, so that servers and `retoma doctor` can name the workers that lack a host. Adds a
-- column that stays empty for existing rows: quick.
alter table retoma.workers add column allow_hosts text[];  -- as RETOMA_ALLOW_HOSTS has them; null if the worker did not say
