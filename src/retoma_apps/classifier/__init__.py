"""The document classifier: batches of documents are read and labelled by the project's taxonomy, and never hang.

retoma serve retoma_apps.classifier
retoma worker retoma_apps.classifier
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`app`, made when asked for: the child processes that read documents import only what they need."""
    if name != "app":
        raise AttributeError(name)
    from retoma_apps.classifier.application import from_environment

    made = globals()["app"] = from_environment()
    return made
