"""The work of the steps, by topic. `pipeline.py` calls it."""
