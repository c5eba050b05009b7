"""Assemble the application: with a GPU provider if its key is set, otherwise with ffmpeg on this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from retoma import App, Settings
from retoma.files import FileSettings
from retoma.outgoing import Guard
from retoma.translations import N_
from retoma_apps.gpu.callback import build_callback_body
from retoma_apps.gpu.checks import check_environment
from retoma_apps.gpu.demo import run_demo
from retoma_apps.gpu.metrics import collect_metrics
from retoma_apps.gpu.pipeline import addaudio, caption, img2vid
from retoma_apps.gpu.routes import create_download_router, router
from retoma_apps.gpu.schemas import JobCallback
from retoma_apps.gpu.settings import GpuSettings, Rules
from retoma_apps.providers.gpu import GpuHost, configured_providers

LOCALE = Path(__file__).parent / "locale"
STEP_LABELS = {
    "parts": N_("Batches of images"),
    "clips": N_("Clips"),
    "leftovers": N_("Images left over"),
    "lone_clip": N_("Clip of a single image"),
    "videos": N_("Videos"),
    "captioned": N_("Captions"),
    "with_audio": N_("Audio"),
}


def make_app(rules: Rules, host: GpuHost, files: FileSettings) -> App:
    return App(
        "gpu",
        title=N_("GPU"),
        description=N_("Turns pictures into video on shared GPUs and reports each result by webhook."),
        pipelines=[img2vid, caption, addaudio],
        resources={"host": host, "rules": rules},
        routes=[router, create_download_router(files)],
        webhook_body=build_callback_body,
        webhook_schema=JobCallback,
        metrics=collect_metrics,
        labels=STEP_LABELS,
        locale=LOCALE,
        demo=partial(run_demo, rules) if rules.offline else None,
        checks=lambda: check_environment(host),
    )


def from_environment() -> App:
    settings = Settings()
    files = FileSettings(home=settings.home, public_url=settings.public_url or _own_address(settings))
    host = configured_providers(settings, files)[0]
    rules = Rules(GpuSettings(), offline=host.is_offline, guard=Guard.from_settings(settings))
    return make_app(rules, host, files)


def _own_address(settings: Settings) -> str:
    """Return the server's address on this machine; RETOMA_PUBLIC_URL is its address for other machines."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104, compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
