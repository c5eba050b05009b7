-- Adds a column to the samples of queues; it takes a moment and locks nothing that workers use for longer.
-- A worker that serves several queues counts in each of them, so their slots cannot be added up.
alter table retoma.queue_samples add column all_slots int not null default 0;  -- of all workers, whatever queues they serve
