"""Settings of a developer's machine, such as accounts and folders. Tests must not use them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic_settings import DotEnvSettingsSource

PROJECT = Path(__file__).parents[1]
PROJECT_PREFIXES = (
    "RETOMA_",
    "OTEL_",
    *("AWS_", "AZURE_SPEECH_", "ELEVENLABS_", "IMAGES_", "OPENROUTER_", "PEXELS_", "RUNPOD_", "SPEECH_"),
    *("WORDPRESS_", "YOUTUBE_"),
    *("AUTOWRITER_", "CLASSIFIER_", "DATAFORSEO_", "GPU_", "JOB_TIMEOUT_MS", "STORIES_", "VIDEOS_", "WEBHOOK_"),
    *("DATABASE_URL", "PORT", "REDIS_URL"),
)
TEST_PREFIX = "RETOMA_TEST_"

_read_env_file = DotEnvSettingsSource._read_env_file


def without_project_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that no setting of ours is read from."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(TEST_PREFIX) or not name.upper().startswith(PROJECT_PREFIXES)
    }


def clear_project_variables() -> None:
    """Of this process, and so of all that it starts. Only an .env that tests write elsewhere is read."""
    for name in os.environ.keys() - without_project_variables(os.environ).keys():
        del os.environ[name]
    DotEnvSettingsSource._read_env_file = _read_unless_project_env  # type: ignore[assignment, method-assign]


def _read_unless_project_env(source: DotEnvSettingsSource, file: Path) -> Mapping[str, str | None]:
    return {} if file.resolve() == PROJECT / ".env" else _read_env_file(source, file)
