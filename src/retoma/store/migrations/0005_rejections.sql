-- Adds the version that a pipeline starts if one of its runs is rejected. Existing versions have none until a worker starts.

alter table retoma.versions add column on_rejected int references retoma.versions;
