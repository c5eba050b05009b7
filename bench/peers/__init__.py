"""One script for each peer, in its best mode: `DATABASE_URL=... python -m bench.peers.dbos --lines chain,drain`."""
