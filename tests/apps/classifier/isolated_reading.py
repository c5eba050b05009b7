"""A step that reads documents, in a module that a child process can import."""

from __future__ import annotations

from pydantic import BaseModel

from retoma import Isolation, Items, Pipeline, Retry, all_finished, seconds
from retoma_apps.classifier.steps.reading import Reading, read_path


class Batch(BaseModel):
    paths: list[str]


batch = Pipeline("reading", inputs=Batch, retry=Retry(0))


@batch.step
def documents(paths: list[str]) -> list[str]:
    return paths


@batch.each(
    documents, key=lambda path: path.rpartition("/")[2], isolation=Isolation(384 << 20, cpu=2), timeout=seconds(60)
)
def text(document: str) -> Reading:
    return read_path(document)


@batch.step(proceed_when=all_finished(allow_failed=1.0))
def report(text: Items[Reading]) -> dict[str, str]:
    return {key: reading.text for key, reading in text.by_key.items()} | {each.key: each.code for each in text.failures}
