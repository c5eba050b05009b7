"""Parameters right of `*` are machinery that the application provides; a missing one is found at import."""

import asyncio
from typing import Protocol

from retoma import App, Pipeline, RetomaError, testing


class Llm(Protocol):
    async def ask(self, prompt: str) -> str: ...


class OfflineLlm:
    async def ask(self, prompt: str) -> str:
        return f"an answer to {prompt!r}"


advice = Pipeline("advice")


@advice.step
async def answer(*, llm: Llm) -> str:
    return await llm.ask("why?")


app = App("resources", pipelines=[advice], resources={"llm": OfflineLlm()})


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        print((await sandbox.run(advice)).results)
    try:
        App("broken", pipelines=[advice], resources={"lm": OfflineLlm()})
    except RetomaError as error:
        print(str(error).partition(";")[0])


if __name__ == "__main__":
    asyncio.run(main())

# prints: {'answer': "an answer to 'why?'"}
# prints: pipeline 'advice', step 'answer': nothing provides the resource 'llm' (did you mean 'lm'?)
