"""Let an external service report its own end: the body of its call to a one-time address is the result."""

import asyncio

from retoma import App, Context, Pipeline, hours, testing


class Printer:
    address = ""

    async def submit(self, text: str, callback_url: str | None) -> str:
        self.address = callback_url or ""
        return f"order of {text!r}"


book = Pipeline("book")


@book.step(timeout=hours(48))
async def printed(*, printer: Printer, ctx: Context) -> dict[str, int]:
    # Without a `poll`, only the callback ends it.
    copies: dict[str, int] = await ctx.external(lambda: printer.submit("On tea", ctx.callback_url))
    return copies


async def main() -> None:
    printer = Printer()
    async with testing.sandbox(App("callbacks", pipelines=[book], resources={"printer": printer})) as sandbox:
        run = await sandbox.client.start(book)
        await sandbox.work(advance_clock=False)
        url, _, token = printer.address.rpartition("/")
        print(url, [work.external_id for work in await sandbox.client.external_work.list(run.id)])
        await sandbox.client.external_work.record_callback(token, {"copies": 500})  # as `POST` to the address does
        await sandbox.work()
        print(await sandbox.client.runs.get_results(run.id))


if __name__ == "__main__":
    asyncio.run(main())

# prints: https://retoma.test/api/v1/callbacks ["order of 'On tea'"]
# prints: {'printed': {'copies': 500}}
