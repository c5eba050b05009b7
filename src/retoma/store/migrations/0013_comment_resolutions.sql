-- Remember which comments of a review that was sent back are resolved. Adds one empty table, and locks nothing that is in use.

create table retoma.comment_resolutions (
  review uuid not null references retoma.reviews on delete cascade,  -- the one that was sent back with the comment
  position int not null,                                             -- of the comment in its feedback, from 0
  resolved_by text not null,
  resolved_at timestamptz not null,
  primary key (review, position)
);
