"""Find out which extras are installed, without importing them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

VERSION_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Extra:
    """An extra of the package. `parts` maps its distributions to their use; `applications` need them."""

    name: str
    parts: dict[str, str]
    applications: tuple[str, ...]

    @property
    def install_command(self) -> str:
        """Return the install command, from the source checkout if there is one."""
        return f"{_python_command()} -m pip install {_install_target(self.name)}"

    def list_missing(self) -> list[str]:
        return [f"{part} ({use})" for part, use in self.parts.items() if not _is_installed(part)]

    def describe_installed(self) -> str:
        return ", ".join(f"{part} {version(part)}" for part in self.parts)


EXTRAS = (
    Extra(
        "media",
        {
            "imageio-ffmpeg": "ffmpeg",
            "espeakng-loader": "eSpeak, the offline voice",
            "pillow": "draws pictures",
            "fontpkg-noto-sans": "the font",
        },
        ("retoma_apps.videos", "retoma_apps.gpu"),
    ),
    Extra(
        "classifier",
        {"pypdfium2": "reads PDF", "scikit-learn": "labels offline"},
        ("retoma_apps.classifier",),
    ),
)


def _install_target(extra: str) -> str:
    clone = Path(__file__).resolve().parents[3]
    if not (clone / "pyproject.toml").exists():
        return f"'retoma[{extra}]'"
    return f"-e '.[{extra}]'" if clone == Path.cwd() else f"-e {shlex.quote(f'{clone}[{extra}]')}"


def _python_command() -> str:
    """Return the path of this interpreter, relative to the working directory if possible."""
    program = Path(sys.executable)
    return shlex.quote(str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program))


def _is_installed(part: str) -> bool:
    if part == "imageio-ffmpeg":
        return find_ffmpeg_version() is not None
    try:
        distribution(part)
    except PackageNotFoundError:
        return False
    return True


def find_ffmpeg_version() -> str | None:
    """Return the version that the extra's ffmpeg prints, or None if it is missing or does not run."""
    for program in _find_ffmpeg_programs():
        try:
            result = subprocess.run(  # noqa: S603
                [program, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return " ".join(result.stdout.split()[:3])
    return None


def _find_ffmpeg_programs() -> Iterator[Path]:
    """Yield the ffmpeg programs of the extra, without importing it."""
    try:
        files = distribution("imageio-ffmpeg").files or []
    except PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files if file.name.startswith("ffmpeg-"))
