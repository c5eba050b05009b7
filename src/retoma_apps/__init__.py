"""The applications that ship with Retoma, and the clients of external services that they share.

retoma serve retoma_apps
retoma worker retoma_apps

`app` includes all applications whose optional dependencies are installed.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from retoma.checks import list_missing

log = logging.getLogger(__name__)

# The applications in the order of the home page, each with the extra of the package that it needs, or None.
APPLICATIONS: dict[str, str | None] = {
    "videos": "media",
    "autowriter": None,
    "classifier": "classifier",
    "gpu": "media",
    "stories": "media",
}


def __getattr__(name: str) -> Any:
    """Create `app` on first access, so one application can be imported without the others."""
    if name != "app":
        raise AttributeError(name)
    from retoma import App

    included = [import_module(f"{__name__}.{each}").app for each in APPLICATIONS if _can_run(each)]
    app = globals()["app"] = App("retoma_apps", title="Retoma", includes=included)
    return app


def _can_run(application: str) -> bool:
    extra = APPLICATIONS[application]
    missing = list_missing(extra) if extra else []
    if missing:
        log.warning(
            "%s.%s is left out, as it needs %s: install them with `pip install 'retoma[%s]'`, in a clone with "
            "`pip install -e '.[%s]'`",
            __name__,
            application,
            ", ".join(missing),
            extra,
            extra,
            extra={"event": "application_left_out"},
        )
    return not missing
