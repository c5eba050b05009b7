-- Adds an index by which new events are found for those who watch live. On a large table this takes a while.

create index events_by_number on retoma.events (id);
