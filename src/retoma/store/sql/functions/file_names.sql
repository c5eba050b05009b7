-- Which runs name which files: in JSON, a file is an object whose `file` is the SHA-256 of its content. Triggers keep the list, so that
-- nothing which names a file is missed; rows without a file cost no more than the search for the word.

-- The digests in a text of JSON.
create or replace function retoma.find_digests(p_text text) returns table (digest bytea) immutable language sql as $$
  select distinct d from unnest(retoma.list_digests(p_text)) d;
$$;

-- Record the files that a text names. Their deletion is not in progress until the commit (`lock_files`).
create or replace function retoma.record_file_names(p_run uuid, p_text text) returns void language plpgsql as $$
declare
  v_digests bytea[] := array(select digest from retoma.find_digests(p_text) order by 1);
begin
  if v_digests <> '{}' then
    perform retoma.keep_named_files(v_digests);
    insert into retoma.file_names (run, digest) select p_run, digest from unnest(v_digests) as digest on conflict do nothing;
  end if;
end $$;

-- Wait until none of these files is being deleted, and let none of them be deleted before the commit.
create or replace function retoma.keep_named_files(p_digests bytea[]) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(retoma.file_lock(shard))
     from (select distinct get_byte(digest, 0) as shard from unnest(p_digests) as digest order by 1) shards;
end $$;

-- Files are locked by the first byte of their digest: a run may name thousands.
create or replace function retoma.file_lock(p_shard int) returns bigint immutable language sql as $$
  select hashtextextended('files ' || p_shard, 0);
$$;

create or replace function retoma.record_files_of_run() returns trigger language plpgsql as $$
begin
  perform retoma.record_file_names(new.id, new.input::text);
  return null;
end $$;

create or replace function retoma.record_files_of_job() returns trigger language plpgsql as $$
begin
  perform retoma.record_file_names(new.run, concat_ws(' ', new.input, new.output));
  return null;
end $$;

create or replace function retoma.record_files_of_row() returns trigger language plpgsql as $$
begin
  perform retoma.record_file_names(new.run, row_to_json(new)::text);
  return null;
end $$;

-- Those that are named outside runs are found by the indexes of these tables (`list_unnamed_files`).
create or replace function retoma.keep_files_of_row() returns trigger language plpgsql as $$
begin
  perform retoma.keep_named_files(retoma.list_digests(row_to_json(new)::text));
  return null;
end $$;

do $$
declare
  v_table text;
  v_columns text;
  v_function text;
begin
  for v_table, v_columns, v_function in values
    ('runs', 'input', 'record_files_of_run'), ('jobs', 'input, output', 'record_files_of_job'), ('effects', 'value', 'record_files_of_row'),
    ('external_work', 'external_id, result', 'record_files_of_row'), ('callbacks', 'body', 'record_files_of_row'),
    ('reviews', 'reason, value, feedback', 'record_files_of_row'), ('pending_reruns', 'feedback', 'record_files_of_row'),
    ('profiles', 'value', 'keep_files_of_row'), ('review_drafts', 'draft', 'keep_files_of_row'),
    ('tenant_facts', 'source', 'keep_files_of_row'), ('inbound_events', 'body', 'keep_files_of_row')
  loop
    execute format(
      'create or replace trigger files_are_named after insert or update of %s on retoma.%I for each row when (%s)
         execute function retoma.%I()',
      v_columns, v_table,
      (select string_agg(format('position(''"file"'' in new.%I::text) > 0', c), ' or ') from regexp_split_to_table(v_columns, ', ') c),
      v_function);
  end loop;
end $$;

-- Record the files of runs from before the list was kept, `p_limit` runs at a time. Returns whether all are recorded, or null if another
-- process is recording them, or removing runs.
create or replace function retoma.index_files(p_limit int) returns boolean language plpgsql as $$
declare
  v_progress retoma.retention_progress;
  v_runs uuid[];
  v_run uuid;
begin
  if exists (select from retoma.retention_progress p where p.indexed_at is not null) then
    return true;
  elsif not retoma.try_lock_retention() then
    return null;
  end if;
  select * into v_progress from retoma.retention_progress;
  v_runs := array(select r.id from retoma.runs r where v_progress.indexed_to is null or r.id > v_progress.indexed_to order by r.id limit p_limit);
  foreach v_run in array v_runs loop
    perform retoma.record_file_names(v_run, d.value) from retoma.list_data_with_files(v_run) d;
  end loop;
  update retoma.retention_progress
     set indexed_to = coalesce(v_runs[cardinality(v_runs)], indexed_to),
         indexed_at = case when cardinality(v_runs) < p_limit then retoma.now() end;
  return cardinality(v_runs) < p_limit;
end $$;

-- Everything of a run that may name files.
create or replace function retoma.list_data_with_files(p_run uuid) returns table (value text) stable language sql as $$
  select d.value
    from (select r.input::text as value from retoma.runs r where r.id = p_run
          union all
          select concat_ws(' ', j.input, j.output) from retoma.jobs j where j.run = p_run
          union all
          select e.value::text from retoma.effects e where e.run = p_run
          union all
          select concat_ws(' ', o.external_id, o.result) from retoma.external_work o where o.run = p_run
          union all
          select c.body::text from retoma.callbacks c where c.run = p_run
          union all
          select concat_ws(' ', v.reason, v.value, v.feedback) from retoma.reviews v where v.run = p_run
          union all
          select l.feedback::text from retoma.pending_reruns l where l.run = p_run) d
   where position('"file"' in d.value) > 0;
$$;

-- The next part of the file store to check, or null: until the files of all runs are recorded, and for `p_pause` after a pass.
create or replace function retoma.claim_file_shard(p_pause interval) returns int language plpgsql as $$
declare
  v_now timestamptz := retoma.now();
  v_shard int;
begin
  update retoma.retention_progress
     set file_shard = (file_shard + 1) % 256, files_checked_at = case when file_shard = 255 then v_now else files_checked_at end
   where indexed_at is not null and (file_shard > 0 or files_checked_at is null or files_checked_at <= v_now - p_pause)
  returning (file_shard + 255) % 256 into v_shard;
  return v_shard;
end $$;

-- The files that a profile, a draft, a fact or an event from another system names.
create or replace function retoma.list_files_named_by_people() returns table (digest bytea) stable language sql as $$
  select unnest(retoma.list_digests(d.value))
    from (select p.value::text from retoma.profiles p
          union all
          select d.draft::text from retoma.review_drafts d
          union all
          select t.source::text from retoma.tenant_facts t
          union all
          select i.body::text from retoma.inbound_events i) as d (value)
   where position('"file"' in d.value) > 0;
$$;

-- Those of these files that nothing names: no run, no profile, draft, fact or event of another system, and no tenant that stored it
-- within `p_grace`. Each is looked up in the indexes.
create or replace function retoma.list_unnamed_files(p_digests bytea[], p_grace interval) returns table (digest bytea) stable language sql as $$
  select g.digest
    from unnest(p_digests) as g (digest)
   where not exists (select from retoma.file_names n where n.digest = g.digest)
     and not exists (select from retoma.profiles p
                      where position('"file"' in p.value::text) > 0 and retoma.list_digests(p.value::text) @> array[g.digest])
     and not exists (select from retoma.review_drafts d
                      where position('"file"' in d.draft::text) > 0 and retoma.list_digests(d.draft::text) @> array[g.digest])
     and not exists (select from retoma.tenant_facts t
                      where position('"file"' in t.source::text) > 0 and retoma.list_digests(t.source::text) @> array[g.digest])
     and not exists (select from retoma.inbound_events i
                      where position('"file"' in i.body::text) > 0 and retoma.list_digests(i.body::text) @> array[g.digest])
     and not exists (select from retoma.tenant_files f where f.digest = g.digest and f.granted_at > retoma.now() - p_grace);
$$;

-- The size of a file in bytes by the data of a run that names it, or null if it does not say.
create or replace function retoma.find_file_size(p_digest bytea) returns bigint stable language sql as $$
  select max(substring(d.value from '"file": ?"' || encode(p_digest, 'hex') || '"[^{}]*"size": ?([0-9]{1,15})\M')::bigint)
    from (select n.run from retoma.file_names n where n.digest = p_digest limit 1) n, retoma.list_data_with_files(n.run) d;
$$;

-- Begin to delete these files of one shard: returns those that nothing names. Until the commit nothing can name another one of them.
-- Returns none if somebody is naming a file of the shard.
create or replace function retoma.lock_files(p_shard int, p_digests bytea[], p_grace interval) returns setof bytea language plpgsql as $$
begin
  if pg_try_advisory_xact_lock(retoma.file_lock(p_shard)) then
    return query select u.digest from retoma.list_unnamed_files(p_digests, p_grace) u;
  end if;
end $$;

-- Count the deleted files, and take back who may name them.
create or replace function retoma.count_deleted_files(p_digests bytea[], p_bytes bigint, p_grace interval) returns void language sql as $$
  update retoma.retention_progress
     set removed_files = removed_files + cardinality(p_digests), removed_file_bytes = removed_file_bytes + p_bytes;
  delete from retoma.tenant_files f where f.digest = any (p_digests) and f.granted_at <= retoma.now() - p_grace;
$$;
