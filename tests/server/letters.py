"""A pipeline whose input is a file."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from pydantic import BaseModel

from retoma import App, Pipeline
from retoma.define.file import File
from retoma.files import FileSettings, create_file_store
from tests.server import articles
from tests.server.api import Api, film
from tests.studio import STUDIO


class Letter(BaseModel):
    letter: File


mail = Pipeline("mail", inputs=Letter)


@mail.step
def weigh(letter: File) -> int:
    return letter.size


def make_app(folder: Path) -> App:
    """Return an application with the pipelines `film`, `article` and `mail`."""
    files = create_file_store(FileSettings(home=folder, files_url=None))
    return App("objects", pipelines=[film, articles.article, mail], connections=[STUDIO], files=files)


async def start_with_file(api: Api, text: str, *, tenant: str) -> tuple[UUID, str]:
    """Start a run, and return its id and the digest of its file."""
    letter = await api.client.files.save(text.encode(), tenant=tenant, name="letter.txt")
    run = await api.client.start("mail", Letter(letter=letter), tenant=tenant)
    return run.id, letter.file
