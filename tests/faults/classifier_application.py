"""The classifier, for workers that a test kills: with limits of memory and time for which a test can wait."""

from __future__ import annotations

from dataclasses import replace

from retoma import Isolation, Retry, seconds
from retoma_apps.classifier.application import from_environment
from retoma_apps.classifier.pipeline import classification

SHORT_LIMITS = {
    "isolation": Isolation(192 << 20, cpu=seconds(1)),
    "timeout": seconds(60),
    "retry": Retry(10, delays=[0.1]),
}

text = classification.steps["text"]
classification._steps["text"] = replace(text, policy=replace(text.policy, **SHORT_LIMITS))  # type: ignore[arg-type]
app = from_environment()
