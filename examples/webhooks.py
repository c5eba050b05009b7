"""Send a signed webhook when a run ends, and retry it until the receiver accepts it."""

import asyncio

from retoma import App, Pipeline, Settings, Webhook, seconds, signing, testing

SECRET = "whsec_" + "c2VjcmV0" * 5
article = Pipeline("article")
bodies: list[tuple[dict[str, str], bytes]] = []


@article.step
def draft() -> str:
    return "Tea is a leaf."


async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[1:-1]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
    bodies.append((headers, await reader.readexactly(int(headers["content-length"]))))
    writer.write(b"HTTP/1.1 %d \r\ncontent-length: 0\r\n\r\n" % (503 if len(bodies) == 1 else 200))
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with testing.sandbox(App("webhooks", pipelines=[article])) as sandbox:
        run = await sandbox.run(article, webhook=Webhook(url, schedule="short"))
        for _ in range(2):  # a worker does this automatically
            await sandbox.send_webhooks(Settings(webhook_secret=SECRET))
            await sandbox.clock.advance(seconds(3))
        (delivery,) = await sandbox.client.webhooks.list_deliveries(run=run.id)
        print(delivery.event, delivery.state, "after", delivery.attempt, "attempts")
        headers, body = bodies[-1]
        print(signing.verify(SECRET, headers, body, await sandbox.clock.now()) == str(delivery.id), body[:23].decode())
    server.close()


if __name__ == "__main__":
    asyncio.run(main())

# prints: run.completed delivered after 2 attempts
# prints: True {"type":"run.completed"
