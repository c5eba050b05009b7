-- Adds an index of the runs that ended more than a day after their creation, for the metrics of a pipeline. Blocks writes to runs while
-- it reads that table once: some seconds for millions of runs. Most runs end sooner, and cost no write to it.

create index slow_runs_by_end on retoma.runs (version, ended_at) where ended_at - created_at > interval '1 day';

-- Replaced by functions that also count files.
drop function if exists retoma.erase_run(uuid, int);
drop function if exists retoma.erase_runs_of_tenant(int, int);
drop function if exists retoma.erase_runs(uuid[]);
drop function if exists retoma.measure_run(uuid);
