"""Pass data that is too large for a result, or not JSON: a result names a file, and the next step reads it."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from retoma import App, Context, File, Pipeline, testing
from retoma.files import FileSettings, create_file_store

film = Pipeline("film")


@film.step
async def sound(*, ctx: Context) -> File:
    return await ctx.save_file(b"la " * 1_000_000, "song.wav")


@film.step
def seconds(sound: File, *, ctx: Context) -> int:
    return len(ctx.path(sound).read_bytes()) // 100_000


async def main() -> None:
    with TemporaryDirectory() as folder:
        files = create_file_store(FileSettings(home=Path(folder)))
        async with testing.sandbox(App("files", pipelines=[film], files=files)) as sandbox:
            results = (await sandbox.run(film)).results
            song = File.model_validate(results["sound"])
            print(song.name, song.size, "bytes,", results["seconds"], "seconds,", (await files.load(song))[:8])


if __name__ == "__main__":
    asyncio.run(main())

# prints: song.wav 3000000 bytes, 30 seconds, b'la la la'
