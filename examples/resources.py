"""Parameters after `*` are resources that the application provides; a missing one is detected at import.

Every worker opens the HTTP client on its own event loop when it starts, and closes it when it exits.
"""

import asyncio
from typing import Protocol

import httpx2

from retoma import App, PerWorker, Pipeline, testing
from retoma.errors import RetomaError


class Llm(Protocol):
    async def ask(self, prompt: str) -> str: ...


class OfflineLlm:
    async def ask(self, prompt: str) -> str:
        return f"an answer to {prompt!r}"


advice = Pipeline("advice")


@advice.step
async def answer(*, llm: Llm) -> str:
    return await llm.ask("why?")


@advice.step
async def source(*, http: httpx2.AsyncClient) -> int:
    return (await http.get("https://example.com/why")).status_code


def open_http() -> httpx2.AsyncClient:
    """Return a client with mock responses; without `transport` it would call the service."""
    return httpx2.AsyncClient(timeout=30, transport=httpx2.MockTransport(lambda request: httpx2.Response(200)))


app = App("resources", pipelines=[advice], resources={"llm": OfflineLlm(), "http": PerWorker(open_http)})


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        print((await sandbox.run(advice)).results)
    try:
        App("broken", pipelines=[advice], resources={"lm": OfflineLlm(), "http": PerWorker(open_http)})
    except RetomaError as error:
        print(str(error).partition(";")[0])


if __name__ == "__main__":
    asyncio.run(main())

# prints: {'answer': "an answer to 'why?'", 'source': 200}
# prints: pipeline 'advice', step 'answer': no resource 'llm' (did you mean 'lm'?)
