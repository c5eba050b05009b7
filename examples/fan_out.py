"""One step returns a list, the next runs once for each element, and `Items[...]` joins the results in order."""

import asyncio

from retoma import App, Items, Pipeline, testing

labels = Pipeline("labels")


@labels.step
def documents() -> list[dict[str, str]]:
    return [{"name": "a.pdf", "text": "Please pay"}, {"name": "b.pdf", "text": "Dear friend"}]


@labels.each(documents, key="name")  # an item keeps its key, whatever its position in the list
def label(document: dict[str, str]) -> str:
    return "invoice" if "pay" in document["text"] else "letter"


@labels.step
def report(label: Items[str]) -> dict[str, str]:
    return label.by_key


app = App("fan_out", pipelines=[labels])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(labels)
        print(run.state, run.results["report"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: completed {'a.pdf': 'invoice', 'b.pdf': 'letter'}
