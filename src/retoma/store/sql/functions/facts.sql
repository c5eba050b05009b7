-- How the words of a language are cut down to their stems.
create or replace function retoma.words_of(p_language text) returns regconfig immutable language sql as $$
  select case left(p_language, 2) when 'pt' then 'pg_catalog.portuguese' when 'en' then 'pg_catalog.english'
              else 'pg_catalog.simple' end::regconfig;
$$;
