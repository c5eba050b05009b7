-- Builds an index on runs, so that those of a rare pipeline are listed at once. Starts wait while it is built.

create index runs_of_version on retoma.runs (version, id);
