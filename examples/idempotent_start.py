"""The same key and input return the same run, so starts are safe to retry."""

import asyncio

from pydantic import BaseModel

from retoma import App, Pipeline, testing
from retoma.errors import Conflict


class Order(BaseModel):
    amount: int


orders = Pipeline("orders", inputs=Order)


@orders.step
def receipt(amount: int) -> str:
    return f"paid {amount}"


app = App("idempotent_start", pipelines=[orders])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        first = await sandbox.client.start(orders, {"amount": 10}, key="order-7")
        again = await sandbox.client.start(orders, {"amount": 10}, key="order-7")
        print(first.created, again.created, first.id == again.id)
        try:
            await sandbox.client.start(orders, {"amount": 99}, key="order-7")
        except Conflict as conflict:
            print(str(conflict).replace(str(first.id), "..."))


if __name__ == "__main__":
    asyncio.run(main())

# prints: True False True
# prints: the key 'order-7' belongs to run ..., which was started with another input
