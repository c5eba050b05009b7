"""Which extras are installed, and what goes without them. Nothing of an extra is loaded to find out."""

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
    """`parts` are distributions, each with what it is for; `applications` need them."""

    name: str
    parts: dict[str, str]
    applications: tuple[str, ...]

    @property
    def install_command(self) -> str:
        """Return the command: from the clone that this is installed from, wherever one calls it."""
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
            "espeakng-loader": "eSpeak, the voice offline",
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
    """This interpreter, as one calls it from this folder."""
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
    """Its version, as the program of the extra says when it is run; None if there is none or it does not run."""
    for program in _find_ffmpeg_programs():
        try:
            ran = subprocess.run(  # noqa: S603
                [program, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return " ".join(ran.stdout.split()[:3])
    return None


def _find_ffmpeg_programs() -> Iterator[Path]:
    """The ffmpeg that the extra brings, found without importing it."""
    try:
        files = distribution("imageio-ffmpeg").files or []
    except PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files if file.name.startswith("ffmpeg-"))
