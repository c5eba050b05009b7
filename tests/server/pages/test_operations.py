"""The pages for operators: retries, dead letters, bulk actions, and the stacks of workers."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, timedelta
from xml.etree import ElementTree

import msgspec
import pytest

from retoma import App, Pipeline, Pool, Retry
from retoma.engine.bulk_actions import advance_open_actions
from retoma.records import JobStack
from retoma.server.pages import capacity
from retoma.server.pages.charts import draw_line
from retoma.states import DeliveryState, RunState
from retoma.store import metrics
from tests.engine.builders import HEARTBEAT_TIMEOUT, rows, run_next
from tests.server.pages.visitor import OpenPages, Visitor, make_dead_delivery, token_of, visible_text

shaky = Pipeline("shaky", retry=Retry(3, delays=[600]))


@shaky.step
async def wobble() -> None:
    raise ValueError("not today")


SHAKY = App("shakes", pipelines=[shaky])


async def fail_once(visitor: Visitor, count: int) -> None:
    """Leave so many jobs waiting for their next attempt."""
    for _ in range(count):
        await visitor.client.start("shaky")
    async with visitor.api.sandbox.manual_worker() as worker:
        await run_next(worker)


async def submit_preview(visitor: Visitor, address: str, key: str = "click") -> str:
    """Confirm what a preview shows, and return the address that follows."""
    page = await visitor.get(address)
    assert page.status_code == 200, page.text
    (expected,) = re.findall(r'name="expected" value="(\d+)"', page.text)
    answer = await visitor.post(address, {"csrf": token_of(page), "expected": expected, "key": key})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def test_a_waiting_job_is_retried_from_its_page(open_pages: OpenPages) -> None:
    async with open_pages(application=SHAKY) as visitor:
        await fail_once(visitor, 1)
        page = await visitor.get("/retries")
        assert "wobble" in visible_text(page)
        (path,) = re.findall(r'action="(/runs/[^"]+/retry-now)"', page.text)
        form = {"csrf": token_of(page), "step": "wobble", "item": ""}
        answer = await visitor.post(path, form)
        after = visible_text(await visitor.get(answer.headers["location"]))
        assert "The job starts now." in after
        assert "No job waits for a retry" in after
        assert (await visitor.post(path, form)).status_code == 409


async def test_a_bulk_action_is_previewed_confirmed_once_and_followed(open_pages: OpenPages) -> None:
    async with open_pages(application=SHAKY) as visitor:
        await fail_once(visitor, 12)
        address = "/bulk-actions/new?kind=retry_jobs&step=wobble"
        preview = visible_text(await visitor.get(address))
        assert "12 jobs would start now." in preview
        assert "These are the oldest 10 of 12." in preview
        target = await submit_preview(visitor, address)
        (action,) = await visitor.client.bulk_actions.list()
        assert target == f"/bulk-actions/{action.id}"
        assert "in progress" in visible_text(await visitor.get(target))
        await advance_open_actions(visitor.api.sandbox.database)
        assert "12 of 12" in visible_text(await visitor.get(target))
        assert "finished" in visible_text(await visitor.get("/bulk-actions"))


async def test_a_second_click_leads_to_the_same_action(open_pages: OpenPages) -> None:
    async with open_pages(application=SHAKY) as visitor:
        await visitor.client.start("shaky")
        page = await visitor.get("/bulk-actions/new?kind=cancel_runs")
        form = {"csrf": token_of(page), "expected": "1", "key": "click"}
        answers = [await visitor.post("/bulk-actions/new?kind=cancel_runs", form) for _ in "12"]
        assert answers[0].headers["location"] == answers[1].headers["location"]
        assert len(await visitor.client.bulk_actions.list()) == 1


async def test_if_more_match_the_preview_is_shown_again(open_pages: OpenPages) -> None:
    async with open_pages(application=SHAKY) as visitor:
        await visitor.client.start("shaky")
        page = await visitor.get("/bulk-actions/new?kind=cancel_runs")
        await visitor.client.start("shaky")
        form = {"csrf": token_of(page), "expected": "1", "key": "click"}
        answer = await visitor.post("/bulk-actions/new?kind=cancel_runs", form)
        again = visible_text(await visitor.get(answer.headers["location"]))
        assert "More match now than were shown." in again
        assert "2 runs would be cancelled." in again
        assert await visitor.client.bulk_actions.list() == []


async def test_an_action_is_aborted_from_its_page(open_pages: OpenPages) -> None:
    async with open_pages(application=SHAKY) as visitor:
        for _ in range(3):
            await visitor.client.start("shaky")
        target = await submit_preview(visitor, "/bulk-actions/new?kind=cancel_runs")
        page = await visitor.get(target)
        await visitor.post(f"{target}/abort", {"csrf": token_of(page)})
        after = visible_text(await visitor.get(target))
        assert "aborted by Dora" in after
        assert {run.state for run in await visitor.client.runs.list()} == {RunState.RUNNING}


async def test_the_filter_of_the_runs_is_that_of_their_bulk_action(open_pages: OpenPages) -> None:
    async with open_pages(application=SHAKY) as visitor:
        await visitor.client.start("shaky", tenant="a & b")
        await visitor.client.start("shaky")
        page = await visitor.get("/runs?tenant=a+%26+b")
        (address,) = re.findall(r'href="([^"]+kind=cancel_runs)"', page.text)
        assert "1 run would be cancelled." in visible_text(await visitor.get(address.replace("&amp;", "&")))


async def test_a_state_that_does_not_suit_the_action_matches_nothing(open_pages: OpenPages) -> None:
    async with open_pages(application=SHAKY) as visitor:
        await visitor.client.start("shaky")
        for query in ("kind=cancel_runs&state=completed", "kind=rerun_failed&state=running"):
            assert "Nothing matches" in visible_text(await visitor.get(f"/bulk-actions/new?{query}"))
        assert "1 run would be" in visible_text(await visitor.get("/bulk-actions/new?kind=cancel_runs&state=running"))
        for query in ("state=bogus", "application=bogus"):
            assert (await visitor.get(f"/bulk-actions/new?kind=cancel_runs&{query}")).status_code == 404


async def test_dead_letters_list_failed_runs_and_dead_webhooks(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"topic": "bad"})
        delivery = await make_dead_delivery(visitor)
        await visitor.api.sandbox.work()
        page = await visitor.get("/dead-letters")
        assert "no paint left" in visible_text(page)
        assert f'action="/runs/{run.id}/rerun-failed"' in page.text
        assert f'action="/deliveries/{delivery}/redeliver"' in page.text
        assert "No dead letters" in visible_text(await visitor.get("/dead-letters?pipeline=other"))
        await submit_preview(visitor, "/bulk-actions/new?kind=redeliver", "one")
        await submit_preview(visitor, "/bulk-actions/new?kind=rerun_failed", "two")
        await advance_open_actions(visitor.api.sandbox.database)
        assert (await visitor.client.webhooks.get_delivery(delivery)).state is DeliveryState.DUE
        assert (await visitor.client.runs.get(run.id)).revision == 2


async def test_an_operator_sees_where_the_jobs_of_a_worker_are(
    open_pages: OpenPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "STACK_WAIT", timedelta(0))
    async with open_pages(application=SHAKY) as visitor, visitor.api.sandbox.manual_worker() as worker:
        run = (await visitor.client.start("shaky")).id
        await worker.claim(1)
        page = await visitor.get("/workers")
        assert "wobble" in visible_text(page)
        answer = await visitor.post("/workers/stacks", {"csrf": token_of(page), "worker": str(worker.worker)})
        assert answer.headers["location"] == f"/workers#worker-{worker.worker}"
        assert "Dora asked for stacks" in visible_text(await visitor.get("/workers"))
        stack = JobStack(run, "wobble", "", 1, 1, 2.5, 'File "a.py", line 3, in wobble\n    <b>call()</b>')
        for jobs, text in ((stack, "<b>call()</b>"), (replace(stack, stack=None), "whose stack is not available")):
            await answer_stacks(visitor, worker.worker, jobs)
            assert text in visible_text(await visitor.get("/workers"))
        missing = await visitor.post("/workers/stacks", {"csrf": token_of(page), "worker": "0"})
        assert missing.status_code == 404


async def answer_stacks(visitor: Visitor, worker: int, job: JobStack) -> None:
    """Answer as a worker does."""
    text = msgspec.json.encode([job]).decode()
    await rows(
        visitor.api.sandbox,
        "update retoma.worker_stacks set answered_at = retoma.now(), jobs = $2 where worker = $1",
        worker,
        text,
    )


async def test_charts_have_a_title_a_description_and_a_table(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        empty = visible_text(await visitor.get("/charts"))
        assert empty.count("No data yet") == 4
        for topic in ("tea", "coffee"):
            await visitor.client.start("film", {"topic": topic})
        await metrics.sample_queues(visitor.api.sandbox.database, HEARTBEAT_TIMEOUT)
        page = await visitor.get("/charts?hours=1&queue=default")
        svg = ElementTree.fromstring(re.findall(r'<svg class="chart".*?</svg>', page.text, re.DOTALL)[0])
        assert [each.tag for each in svg][:2] == ["title", "desc"]
        assert svg.attrib["aria-labelledby"] == "queue-size-title queue-size-desc"
        assert "Highest: 2." in visible_text(page)
        assert re.search(r'<th scope="row">11:59:00</th><td class="n">2</td><td class="n">0</td>', page.text), page.text


async def test_a_queue_is_sampled_once_a_minute_for_a_day(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        sandbox = visitor.api.sandbox
        await visitor.client.start("film", {})
        since = await visitor.client.now()
        for seconds in (0, 30, 30, 86_400):
            await sandbox.clock.advance(timedelta(seconds=seconds))
            await metrics.sample_queues(sandbox.database, HEARTBEAT_TIMEOUT)
            await metrics.sample_queues(sandbox.database, HEARTBEAT_TIMEOUT)
        found = await visitor.client.metrics.list_queue_samples(since - timedelta(days=1))
        assert [(each.at - since, each.ready, each.running) for each in found] == [
            (timedelta(minutes=1), 1, 0),
            (timedelta(minutes=1, days=1), 1, 0),
        ]


@pytest.mark.parametrize("query", ["", "?queue=default"])
async def test_a_busy_worker_of_two_queues_is_fully_used(open_pages: OpenPages, query: str) -> None:
    two = Pipeline("two")

    @two.step(queue="first")
    async def first() -> None: ...

    @two.step
    async def second() -> None: ...

    async with (
        open_pages(application=App("two", pipelines=[two])) as visitor,
        visitor.api.sandbox.manual_worker() as worker,
    ):
        await visitor.client.start("two")
        assert {each.step for each in await worker.claim(2)} == {"first", "second"}
        database = visitor.api.sandbox.database
        await rows(visitor.api.sandbox, "update retoma.workers set concurrency = 2")
        await metrics.sample_queues(database, HEARTBEAT_TIMEOUT)
        page = visible_text(await visitor.get(f"/charts{query}"))
        assert f"Highest: {'50' if query else '100'}%." in page.partition("The share of the workers")[2]


async def test_costs_are_summed_by_the_days_of_the_viewer(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.client.start("film", {})
        await rows(
            visitor.api.sandbox,
            "insert into retoma.charges"
            " (id, run, step, item, revision, attempt, tenant, at, provider, resource, micros)"
            " select gen_random_uuid(), r.id, 'lines', '', 1, 1, r.tenant, at, 'p', 'r', 1500000 from retoma.runs r,"
            " (values ('2030-01-01 01:00Z'::timestamptz), ('2030-01-01 11:00Z')) as n (at)",
        )
        since = await visitor.client.now() - timedelta(days=3)
        assert await visitor.client.costs.get_by_day(since) == {date(2030, 1, 1): 3_000_000}
        own = await visitor.client.costs.get_by_day(since, "America/Sao_Paulo")
        assert own == {date(2029, 12, 31): 1_500_000, date(2030, 1, 1): 1_500_000}
        assert "2030-01-01: US$ 3.00" in (await visitor.get("/charts")).text


async def test_a_pool_names_the_holders_of_its_slots_and_who_waits(open_pages: OpenPages) -> None:
    drawing = Pipeline("drawing")

    @drawing.step(pool=Pool("gpu", capacity=2), slots=2)
    async def draw() -> None: ...

    async with (
        open_pages(application=App("drawings", pipelines=[drawing])) as visitor,
        visitor.api.sandbox.manual_worker() as worker,
    ):
        first, second = [(await visitor.client.start("drawing", tenant=tenant)).id for tenant in ("a", "b")]
        await worker.claim(2)
        (holder,), (waiter,) = await visitor.client.pools.list_holders(), await visitor.client.pools.list_waiters()
        assert (holder.pool, holder.slots, holder.run, holder.tenant, holder.state) == ("gpu", 2, first, "a", "running")
        assert (waiter.pool, waiter.slots, waiter.run, waiter.tenant, waiter.state) == ("gpu", 2, second, "b", "ready")
        assert await visitor.client.pools.list_holders(tenant="b") == []
        page = visible_text(await visitor.get("/pools"))
        assert "2 of 2 slots" in page
        assert page.index("Running") < page.index("waits for slots")


def test_a_value_between_missing_ones_is_drawn() -> None:
    assert draw_line("waits", "warn", [None, None, 5.0, None, None], 10, str).pieces == ["262.5,75.0 337.5,75.0"]
    assert draw_line("waits", "warn", [None, None, None, None, 10], 10, str).pieces == ["562.5,0.0 600.0,0.0"]
