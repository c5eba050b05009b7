-- Records which private hosts the server that started last accepts in URLs, so that a worker that would refuse them knows it at its
-- start. Adds an empty table: quick.
create table retoma.allowed_hosts (
  host text primary key       -- a name, an address or a network, as RETOMA_ALLOW_HOSTS has it
);
