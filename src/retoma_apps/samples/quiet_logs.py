"""Keep the expected trouble of the sample data out of the log, where it would look like a fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retoma.logs import hide_lines
from retoma_apps.samples.demo import WEBHOOK_URL
from retoma_apps.samples.pipelines import STEP_LABELS


def hide_sample_lines() -> None:
    """Drop lines about the steps and the webhook of the sample data, in this process."""
    hide_lines(_is_about_samples)


def _is_about_samples(line: Mapping[str, Any]) -> bool:
    return line.get("step") in STEP_LABELS or line.get("url") == WEBHOOK_URL
