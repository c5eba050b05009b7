"""One script per engine, in its best mode: `DATABASE_URL=... python -m bench.peers.dbos --lines chain,drain`."""
