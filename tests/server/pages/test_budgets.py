"""The page of budgets, and the review of a job that would pass one."""

from __future__ import annotations

from datetime import date

from retoma import App, Context, Pipeline
from tests.engine.builders import run_next, state
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text

DOLLAR = 1_000_000
film = Pipeline("film")


@film.step(estimated_cost=12)
async def scene(*, ctx: Context) -> None:
    ctx.charge("video", "second", micros=12 * DOLLAR)


FILMS = App("films", pipelines=[film])


async def wait_for_budget(visitor: Visitor) -> str:
    """Start a run of the channel with a budget of 50 US dollars, of which 48 are spent. Return its review."""
    budgets = visitor.client.budgets
    await budgets.set_money("channel", currency="BRL", rate=5.4, rate_date=date(2026, 11, 2))
    await budgets.set("channel", "month", 60 * DOLLAR)
    for _ in range(4):
        await visitor.api.sandbox.run(film, tenant="channel")
    await budgets.set("channel", "month", 50 * DOLLAR)
    await visitor.client.start(film, tenant="channel")
    async with visitor.api.sandbox.manual_worker() as worker:
        await run_next(worker)
    (review,) = await visitor.client.reviews.list()
    return str(review.id)


async def test_the_page_shows_what_is_used_of_each_budget(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        await wait_for_budget(visitor)
        text = visible_text(await visitor.get("/budgets"))
        assert "US$ 48.00 (R$259.20) of US$ 50.00 (R$270.00) used" in text
        portuguese = visible_text(await visitor.get("/budgets?lang=pt"))
        assert "US$ 48,00 (R$\xa0259,20) de US$ 50,00 (R$\xa0270,00) usados" in portuguese


async def test_a_review_says_which_budget_would_be_passed(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        text = visible_text(await visitor.get(f"/reviews/{await wait_for_budget(visitor)}"))
        assert "US$ 48.00 (R$259.20) of US$ 50.00 (R$270.00) spent, this step is estimated at US$ 12.00" in text
        assert "Run it anyway" in text
        assert "Stop the run" in text
        assert "Run again" not in text


async def test_a_review_says_that_a_budget_is_used_up(open_pages: OpenPages) -> None:
    letter = Pipeline("letter")

    @letter.step(cost_limit=2)
    async def write() -> None: ...

    async with open_pages(application=App("letters", pipelines=[letter])) as visitor:
        await visitor.client.budgets.set("channel", "month", 0)
        await visitor.client.start(letter, tenant="channel")
        await visitor.api.sandbox.work(advance_clock=False)
        (review,) = await visitor.client.reviews.list()
        assert "is used up: US$ 0.00 of US$ 0.00 spent." in visible_text(await visitor.get(f"/reviews/{review.id}"))


async def test_raising_the_budget_from_the_review_lets_the_run_continue(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        page = await visitor.get(f"/reviews/{await wait_for_budget(visitor)}")
        form = {"csrf": token_of(page), "tenant": "channel", "period": "month", "pipeline": "", "limit": "60,00"}
        answer = await visitor.post("/budgets", {**form, "review": "1"})
        assert answer.status_code == 303, answer.text
        await visitor.api.sandbox.work()
        (entry, *_) = await visitor.client.audit.list(action="budget")
        assert entry.before is not None
        assert entry.after is not None
        assert (entry.action, entry.before["micros"], entry.after["micros"]) == ("budget.set", 50 * DOLLAR, 60 * DOLLAR)
        assert {run.state for run in await visitor.client.runs.list()} == {"completed"}


async def test_running_it_anyway_continues_this_job_only(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        review = await wait_for_budget(visitor)
        page = await visitor.get(f"/reviews/{review}")
        await visitor.post(f"/reviews/{review}", {"csrf": token_of(page), "action": "approve", "seen": "1"})
        await visitor.api.sandbox.work()
        (run, *_) = await visitor.client.runs.list()
        assert await state(visitor.api.sandbox, run.id) == "completed"
        later = await visitor.client.start(film, tenant="channel")
        await visitor.api.sandbox.work(advance_clock=False)
        assert await state(visitor.api.sandbox, later.id) == "needs_review"


async def test_a_budget_is_added_and_removed_on_the_page(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        page = await visitor.get("/budgets")
        form = {"csrf": token_of(page), "tenant": "blog", "period": "day", "limit": "2.50", "warn_at": "90"}
        await visitor.post("/budgets", form)
        budget = await visitor.client.budgets.get("blog", "day")
        assert (budget.micros, budget.warn_at) == (2_500_000, 0.9)
        await visitor.post("/budgets/remove", form)
        assert await visitor.client.budgets.list() == []


async def test_amounts_are_typed_as_the_viewers_language_writes_them(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        await visitor.client.budgets.set_money("channel", currency="BRL", rate=5.4321, rate_date=date(2026, 11, 2))
        await visitor.client.budgets.set("channel", "month", 1_250 * DOLLAR)
        page = await visitor.get("/budgets?lang=pt")
        assert 'name="limit" value="1250,00"' in page.text
        assert 'name="rate" value="5,4321"' in page.text
        form = {"csrf": token_of(page), "tenant": "channel", "period": "month", "limit": "1250,00"}
        assert (await visitor.post("/budgets", form)).status_code == 303
        (budget,) = await visitor.client.budgets.list()
        assert budget.micros == 1_250 * DOLLAR


async def test_the_page_of_a_run_shows_its_budgets(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        await wait_for_budget(visitor)
        (run, *_) = await visitor.client.runs.list()
        assert "US$ 48.00 (R$259.20) of US$ 50.00 (R$270.00) used" in visible_text(await visitor.get(f"/runs/{run.id}"))


async def test_an_amount_that_is_none_is_refused(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS) as visitor:
        page = await visitor.get("/budgets")
        form = {"csrf": token_of(page), "tenant": "blog", "period": "day", "limit": "much"}
        answer = await visitor.post("/budgets", form)
        assert answer.status_code == 422
        assert "Enter an amount such as 12.50." in visible_text(answer)
