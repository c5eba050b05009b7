"""Benchmarks of Retoma and of other engines on the same machine: `python -m bench`.

Import nothing here: the scripts of the other engines run in environments without Retoma.
"""
