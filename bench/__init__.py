"""How fast Retoma is, beside others on the same machine: `python -m bench`.

Nothing may be imported here: the peers' scripts run in environments that have no Retoma.
"""
