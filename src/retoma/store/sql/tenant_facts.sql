-- name: remember
-- A fact that is known already is stored once, with the higher confidence.
insert into retoma.tenant_facts as f (app, tenant, language, text, digest, source, confidence, search, run, created_at)
select distinct on (g.text) :app, :tenant, :language, g.text, sha256(convert_to(g.text, 'UTF8')), g.source, g.confidence,
       to_tsvector(retoma.text_search_config(:language), g.text || ' ' || :about::text), :run, retoma.now()
  from unnest(:text::text[], :source::json[], :confidence::real[]) as g (text, source, confidence)
 order by g.text, g.confidence desc
    on conflict (app, tenant, language, digest) do update
   set confidence = greatest(f.confidence, excluded.confidence), search = f.search || excluded.search
returning 1;

-- name: recall
-- Return facts that match more than half of the query terms, best match and highest confidence first.
-- A real is read by its digits: as a float, 0.9 would be 0.8999999761581421.
with query as materialized (
  select tsvector_to_array(to_tsvector(retoma.text_search_config(:language), :query)) as words
), found as (
  select f.text, f.source::text as source, f.confidence,
         (select count(*) from unnest(a.words) w where w = any (tsvector_to_array(f.search))) as shared, cardinality(a.words) as of
    from query a
    join retoma.tenant_facts f on f.search @@ array_to_string(array(select quote_literal(w) from unnest(a.words) w), ' | ')::tsquery
   where f.app = :app and f.tenant = :tenant and f.language = :language and a.words <> '{}'
)
select text, source, confidence::text::float8 as confidence
  from found
 where shared * 2 > of
 order by shared desc, confidence desc, text
 limit :limit;
