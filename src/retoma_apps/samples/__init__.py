"""All applications, and sample data for people who look at Retoma for the first time: `make run`.

retoma dev retoma_apps.samples --demo
"""

from __future__ import annotations

from retoma_apps.lazy_app import lazy_app

__getattr__ = lazy_app(__name__)
