-- The text search configuration that stems the words of a language.
create or replace function retoma.text_search_config(p_language text) returns regconfig immutable language sql as $$
  select case left(p_language, 2) when 'pt' then 'pg_catalog.portuguese' when 'en' then 'pg_catalog.english'
              else 'pg_catalog.simple' end::regconfig;
$$;
