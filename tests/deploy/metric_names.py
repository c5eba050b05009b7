"""Extract the metrics that a query uses."""

from __future__ import annotations

import re

_FUNCTIONS = {"delta", "histogram_quantile", "increase", "max", "min", "rate", "sum", "vector"}
_LABELS = {"job", "le", "loop", "outcome", "period", "pipeline", "pool", "queue", "reviewer", "state", "step", "tenant"}
_OPERATORS = {"and", "by", "group_left", "offset", "on", "or", "unless"}


# The prefixes of Retoma's own metrics.
OWN = ("retoma_", "orchestrator_", "jobs_processed_", "avg_", "p50_", "p95_", "oldest_queue_time_")


def used_in(query: str) -> set[str]:
    """Without its functions, labels, text and durations."""
    bare = re.sub(r'"[^"]*"|\[[^]]*\]|\{[^}]*\}', " ", query)
    return set(re.findall(r"\b[a-zA-Z_][a-zA-Z0-9_]*", bare)) - _FUNCTIONS - _LABELS - _OPERATORS
