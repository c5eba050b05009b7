-- name: write_attempt_providers
-- The provider of each attempt. If an attempt did not count and was repeated, the last provider is kept.
insert into retoma.attempt_providers as known (run, step, item, revision, attempt, fence, provider)
select distinct on (a.run, a.step, a.item, a.revision, a.attempt) a.run, a.step, a.item, a.revision, a.attempt, a.fence, a.provider
  from unnest(:run::uuid[], :step::text[], :item::text[], :revision::int[], :attempt::int[], :fence::int[], :provider::text[])
       as a (run, step, item, revision, attempt, fence, provider)
 order by a.run, a.step, a.item, a.revision, a.attempt, a.fence desc
    on conflict (run, step, item, revision, attempt)
    do update set fence = excluded.fence, provider = excluded.provider
                where known.fence <= excluded.fence;
