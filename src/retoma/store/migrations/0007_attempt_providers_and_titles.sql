-- Adds the provider of each attempt with a provider chain, and an index by the words of titles. While the index is built no run can start:
-- up to a minute for each million runs with a title on a busy machine.

-- The provider of a chain that an attempt uses, from the moment it was chosen. Steps without a chain have no rows.
create table retoma.attempt_providers (
  run uuid not null,
  step text collate "C" not null,
  item text collate "C" not null,
  revision int not null,
  attempt int not null,
  fence int not null,                      -- of the last lease under this attempt: an attempt that does not count is made again
  provider text not null,
  primary key (run, step, item, revision, attempt)
);

-- The words of a title in order, in lower case. An index depends on these functions, so they must not change.
create function retoma.split_title(p_title text) returns text[] immutable strict parallel safe language sql as $$
  select array_remove(regexp_split_to_array(lower(p_title), '[^[:alnum:]]+'), '');
$$;

create function retoma.title_words(p_title text) returns tsvector immutable strict parallel safe language sql as $$
  select array_to_tsvector(retoma.split_title(p_title));
$$;

create index runs_by_title_words on retoma.runs using gin (retoma.title_words(title)) where title is not null;
