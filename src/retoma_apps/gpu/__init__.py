"""The GPU orchestrator: it turns pictures into video on shared GPUs and reports results by webhook.

retoma serve retoma_apps.gpu
retoma worker retoma_apps.gpu
"""

from retoma_apps.gpu.application import app

__all__ = ["app"]
