"""Assemble the application: all that ship with Retoma, and one whose pipelines make the sample data."""

from __future__ import annotations

import retoma_apps
from retoma import App
from retoma.translations import N_
from retoma_apps.samples.demo import run_demo
from retoma_apps.samples.pipelines import LOCALE, STEP_LABELS, failing, rejected, slow
from retoma_apps.samples.quiet_logs import hide_sample_lines


def make_app() -> App:
    return App(
        "samples",
        title=N_("Sample data"),
        description=N_(
            "A running, a stuck and a failed run, and a dead webhook, to look around. Nothing here is real work."
        ),
        pipelines=[slow, rejected, failing],
        labels=STEP_LABELS,
        locale=LOCALE,
        demo=run_demo,
    )


def from_environment() -> App:
    hide_sample_lines()
    return App("retoma_apps", title="Retoma", includes=[retoma_apps.app, make_app()])
