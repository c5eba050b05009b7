-- Adds what the inbox keeps: the results of batches, the settings of a viewer, and indexes. Existing data does not change.

-- The result of several reviews that a person approved at once. Kept for 30 days.
create table retoma.review_batches (
  id uuid primary key,
  person text not null,
  created_at timestamptz not null,
  outcomes json not null                   -- for each review its id, and why it was not approved
);
create index review_batches_by_age on retoma.review_batches (created_at);

-- How a person has set up the pages: their keys.
create table retoma.viewer_settings (
  person text primary key,
  settings json not null,
  saved_at timestamptz not null
);

create index review_drafts_by_age on retoma.review_drafts (saved_at);
create index ended_reviews_by_age on retoma.reviews (ended_at desc, id) where ended_at is not null;
