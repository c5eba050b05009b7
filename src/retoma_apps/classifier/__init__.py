"""The document classifier: it reads batches of documents and labels them by the project's taxonomy, without hanging.

retoma serve retoma_apps.classifier
retoma worker retoma_apps.classifier
"""

from __future__ import annotations

from retoma_apps.lazy_app import lazy_app

__getattr__ = lazy_app(__name__)
