-- The query for titles that contain a text: all of its words, the last of which may be the beginning of a longer one. Null if it has none.
create or replace function retoma.title_query(p_text text) returns tsquery immutable strict language sql as $$
  select string_agg(quote_literal(w.word) || case when w.ordinal = cardinality(retoma.split_title(p_text)) then ':*' else '' end, ' & ')::tsquery
    from unnest(retoma.split_title(p_text)) with ordinality as w (word, ordinal);
$$;

-- Runs whose titles contain a text that begins where a word begins, the newest first.
create or replace function retoma.list_runs_by_title(
  p_text text, p_tenant int, p_tenants int[], p_pipelines text[], p_states text[], p_parent uuid, p_before uuid, p_first uuid, p_limit bigint)
returns setof retoma.runs stable language sql as $$
  select r.*
    from retoma.runs r
    join retoma.versions v on v.id = r.version
   where r.title is not null and retoma.title_words(r.title) @@ retoma.title_query(p_text)
     and position(lower(p_text) in lower(r.title)) > 0
     and (p_pipelines is null or v.pipeline = any (p_pipelines))
     and (p_parent is null or (r.parent).run = p_parent)
     and retoma.matches_filter(r, p_tenant, p_states, p_before, p_first) and (p_tenants is null or r.tenant = any (p_tenants))
   order by r.id desc
   limit p_limit;
$$;
