"""The document classifier: it reads batches of documents and labels them by the project's taxonomy, without hanging.

retoma serve retoma_apps.classifier
retoma worker retoma_apps.classifier
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Create `app` on first access: the child processes that read documents import only what they need."""
    if name != "app":
        raise AttributeError(name)
    from retoma_apps.classifier.application import from_environment

    app = globals()["app"] = from_environment()
    return app
