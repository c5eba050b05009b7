"""The waveform of a recording: its peaks are computed once, and kept in the file store."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from starlette.responses import JSONResponse, Response

from retoma import File
from retoma.errors import NotFound
from retoma.files import FileStore
from retoma.server import Page, PageContext
from retoma_apps.media.temp_dir import temp_dir
from retoma_apps.providers import ffmpeg

PEAKS = 600  # of a whole recording, whatever its length
_RATE = 8_000
_LOUDEST = 32_768
_HEADERS = {"Cache-Control": "private, max-age=86400", "X-Content-Type-Options": "nosniff"}  # a digest never changes


@dataclass(frozen=True)
class WaveformPages:
    """`route` has `{run}` and `{digest}`. One recording is decoded at a time."""

    files: FileStore
    route: str
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(self.route, self.show),)

    async def show(self, context: PageContext) -> Response:
        """Return the peaks from 0 to 1 as JSON; none if it is not a recording that can be decoded."""
        file = await context.client.files.get(context.get_path_id("run"), context.request.path_params["digest"])
        return JSONResponse({"peaks": await self._get_peaks(file)}, headers=_HEADERS)

    async def _get_peaks(self, file: File) -> list[float]:
        key = f"waveforms/{file.file}.json"
        async with self._lock:
            kept = await self.files.open_key(key)
            if kept is not None:
                return list(json.loads(b"".join([chunk async for chunk in kept.chunks])))
            try:
                peaks = await compute_peaks(await self.files.get_path(file))
            except ffmpeg.FfmpegFailed:
                peaks = []
            except FileNotFoundError:
                raise NotFound(f"the content of file {file.file} is not in the file store") from None
            with tempfile.TemporaryDirectory() as folder:
                written = Path(folder) / "peaks.json"
                written.write_text(json.dumps(peaks), encoding="utf-8")
                await self.files.put(written, key)
            return peaks


async def compute_peaks(recording: Path, count: int = PEAKS) -> list[float]:
    """Return the loudest sample of each of `count` equal parts, relative to the loudest of all. The path is absolute.
    Raise FfmpegFailed if it cannot be decoded."""
    with temp_dir("waveform") as folder:
        (folder / "recording").symlink_to(recording)
        source = ffmpeg.media_input(folder / "recording")
        sound = ["-map", "0:a:0", "-ac", "1", "-ar", str(_RATE), "-f", "s16le", "sound.pcm"]
        await ffmpeg.run([*source, *sound], folder)
        return await asyncio.to_thread(_read_peaks, folder / "sound.pcm", count)


def _read_peaks(path: Path, count: int) -> list[float]:
    samples = array("h")
    samples.frombytes(path.read_bytes()[: path.stat().st_size // samples.itemsize * samples.itemsize])
    if sys.byteorder == "big":
        samples.byteswap()
    edges = [len(samples) * at // count for at in range(count + 1)]
    parts = [samples[first:last] for first, last in pairwise(edges)]
    found = [max(max(part), -min(part)) / _LOUDEST if part else 0.0 for part in parts]
    loudest = max(found, default=0.0) or 1.0
    return [round(peak / loudest, 3) for peak in found]
