"""Replace a result by hand: its dependents rerun with the new value, and everything else stays."""

import asyncio

from retoma import App, Pipeline, testing

article = Pipeline("article")


@article.step
def title() -> str:
    return "On tee"


@article.step
def picture() -> str:
    print("painted")  # once: it does not depend on the title
    return "tea.jpg"


@article.step
def page(title: str, picture: str) -> str:
    return f"{title} <{picture}>"


app = App("edit", pipelines=[article])


async def main() -> None:
    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(article)
        print(run.results["page"])
        await sandbox.client.runs.edit(run.id, "title", "On tea", by="ana")
        await sandbox.work()
        print((await sandbox.client.runs.get_results(run.id))["page"])


if __name__ == "__main__":
    asyncio.run(main())

# prints: painted
# prints: On tee <tea.jpg>
# prints: On tea <tea.jpg>
