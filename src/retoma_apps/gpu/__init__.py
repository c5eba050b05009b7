"""The GPU orchestrator: it turns pictures into video on shared GPUs and reports results by webhook.

retoma serve retoma_apps.gpu
retoma worker retoma_apps.gpu
"""

from __future__ import annotations

from retoma_apps.lazy_app import lazy_app

__getattr__ = lazy_app(__name__)
