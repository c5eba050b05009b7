"""Assemble the application: with RunPod if its key is set, otherwise with ffmpeg on this machine."""

from __future__ import annotations

from retoma import App, Settings
from retoma.files import FileSettings
from retoma.outgoing import Guard
from retoma_apps.gpu.callback import build_callback_body
from retoma_apps.gpu.downloads import create_download_router
from retoma_apps.gpu.metrics import collect_metrics
from retoma_apps.gpu.pipeline import addaudio, caption, img2vid
from retoma_apps.gpu.routes import router
from retoma_apps.gpu.schemas import JobCallback
from retoma_apps.gpu.settings import GpuSettings, Rules
from retoma_apps.providers.gpu import GpuHost, LocalHost, RunPodHost, RunPodSettings


def make_app(rules: Rules, host: GpuHost, files: FileSettings) -> App:
    return App(
        "gpu",
        pipelines=[img2vid, caption, addaudio],
        resources={"host": host, "rules": rules},
        routes=[router, create_download_router(files)],
        webhook_body=build_callback_body,
        webhook_schema=JobCallback,
        metrics=collect_metrics,
    )


def from_environment() -> App:
    settings, runpod = Settings(), RunPodSettings()
    files = FileSettings(home=settings.home, public_url=settings.public_url or _own_address(settings))
    offline = not runpod.api_key.get_secret_value()
    host: GpuHost = LocalHost(settings, files) if offline else RunPodHost(runpod)
    return make_app(
        Rules.from_settings(GpuSettings(), offline=offline, guard=Guard.from_settings(settings)), host, files
    )


def _own_address(settings: Settings) -> str:
    """Return the server's address on this machine; RETOMA_PUBLIC_URL is its address for other machines."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104, compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


app = from_environment()
