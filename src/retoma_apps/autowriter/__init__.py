"""AutoWriter: from a line of a CSV file to a draft in WordPress, for many blogs.

retoma serve retoma_apps.autowriter
retoma worker retoma_apps.autowriter
"""

from __future__ import annotations

from retoma_apps.lazy_app import lazy_app

__getattr__ = lazy_app(__name__)
