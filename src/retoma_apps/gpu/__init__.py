"""The GPU orchestrator: pictures become video on shared GPUs, and a webhook tells the result.

retoma serve retoma_apps.gpu
retoma worker retoma_apps.gpu
"""

from retoma_apps.gpu.application import app

__all__ = ["app"]
