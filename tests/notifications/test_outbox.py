"""Who is notified of what, in the transaction of the event, and what is left out when it is sent."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from retoma import Webhook
from retoma.engine.reviews import Decision
from retoma.records import Channel, Role
from retoma.store import people
from tests.conftest import OpenSandbox
from tests.engine.builders import rows, value
from tests.notifications.builders import (
    add_channels,
    add_person,
    failing,
    list_cancelled,
    list_pending,
    reviewed,
    skip_minutes,
    start_review,
)
from tests.notifications.smtp_server import smtp_server


async def test_a_review_is_reported_to_everybody_who_may_decide_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        ana = await add_person(sandbox, "Ana")
        admin = await add_person(sandbox, "Bia", role=Role.ADMINISTRATOR)
        viewer = await add_person(sandbox, "Caio", role=Role.VIEWER)
        await start_review(sandbox)
        assert await list_pending(sandbox, ana) == ["review.opened"]
        assert await list_pending(sandbox, admin) == ["review.opened"]
        assert await list_pending(sandbox, viewer) == []


async def test_nobody_hears_of_a_tenant_without_a_role_in_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox)
        inside = await add_person(sandbox, "Ana", tenant="blog")
        outside = await add_person(sandbox, "Bia", tenant="other")
        await start_review(sandbox, tenant="blog")
        assert await list_pending(sandbox, inside) == ["review.opened"]
        assert await list_pending(sandbox, outside) == []


async def test_a_disabled_person_hears_of_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox)
        person = await add_person(sandbox)
        await people.disable_person(sandbox.database, person)
        await start_review(sandbox)
        assert await list_pending(sandbox) == []


async def test_without_a_channel_nothing_is_recorded(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_person(sandbox)
        await start_review(sandbox)
        assert await list_pending(sandbox) == []


async def test_a_review_for_one_person_is_reported_to_that_person_only(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        ana, bia = await add_person(sandbox, "Ana"), await add_person(sandbox, "Bia")
        review = await start_review(sandbox)
        await _assign(sandbox, review, person=bia)
        async with smtp_server() as server:
            await sandbox.send_notifications(server.settings())
        assert server.recipients == ["bia@example.com"]
        assert await list_cancelled(sandbox) == ["assigned to others"]
        assert await list_pending(sandbox, ana) == []


async def test_an_assignment_by_address_is_reported_to_that_person_only(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed(assignee="ana@example.com")) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        ana, bia = await add_person(sandbox, "Ana"), await add_person(sandbox, "Bia")
        review = await start_review(sandbox)
        assert await list_pending(sandbox, ana) == ["review.assigned"]
        assert await list_pending(sandbox, bia) == []
        await sandbox.client.reviews.assign(review, "Bia", by="Caio")
        assert await list_pending(sandbox, bia) == ["review.assigned"]


async def test_an_escalation_is_reported_to_the_role(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed(escalate=timedelta(hours=1), escalate_to="operator")) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        reviewer = await add_person(sandbox, "Ana")
        operator = await add_person(sandbox, "Bia", role=Role.OPERATOR)
        await start_review(sandbox)
        await skip_minutes(sandbox, 61)
        await sandbox.work(advance_clock=False)
        assert await list_pending(sandbox, operator) == ["review.opened", "review.escalated"]
        assert await list_pending(sandbox, reviewer) == ["review.opened"]


async def test_a_role_that_nobody_has_is_replaced_by_the_next_higher_one(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox, "Ana")
        await add_person(sandbox, "Bia", role=Role.ADMINISTRATOR)
        review = await start_review(sandbox)
        await _assign(sandbox, review, role="operator")
        audience = await value(sandbox, "select retoma.review_audience(v) from retoma.reviews v where id = $1", review)
        names = await rows(sandbox, "select name from retoma.people where id = any ($1)", audience)
        assert [row["name"] for row in names] == ["Bia"]


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [
        ({"due": timedelta(hours=2)}, ["review.opened", "review.due"]),
        ({"remind": timedelta(hours=1)}, ["review.opened", "review.due"]),
        ({"escalate": timedelta(hours=1), "escalate_to": "administrator"}, ["review.opened", "review.escalated"]),
    ],
)
async def test_a_review_that_waits_is_reported_again(
    open_sandbox: OpenSandbox, policy: dict[str, object], kinds: list[str]
) -> None:
    async with open_sandbox(reviewed(**policy)) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox, role=Role.ADMINISTRATOR)
        await start_review(sandbox)
        for _ in range(3):
            await skip_minutes(sandbox, 121)
            await sandbox.work(advance_clock=False)
        assert await list_pending(sandbox) == kinds


async def test_a_failed_run_is_reported_to_operators(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(failing()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        operator = await add_person(sandbox, "Ana", role=Role.OPERATOR)
        await add_person(sandbox, "Bia", role=Role.REVIEWER)
        await sandbox.run("fails")
        assert await list_pending(sandbox) == await list_pending(sandbox, operator) == ["run.failed"]


async def test_dead_letters_are_reported_once_an_hour_for_an_endpoint(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(failing()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        operator = await add_person(sandbox, role=Role.OPERATOR)
        for _ in range(3):
            await sandbox.run("fails", webhook=Webhook("http://127.0.0.1:9/hook", events=("run.failed",), retries=0))
            await sandbox.send_webhooks()
        assert (await list_pending(sandbox, operator)).count("delivery.dead") == 1


async def test_a_budget_is_reported_once_for_each_key(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox, role=Role.OPERATOR)
        for _ in range(2):
            await sandbox.client.notifications.report_budget("2030-01 80%", name="models", used=80, limit=100)
        assert await list_pending(sandbox) == ["budget"]


async def test_a_notification_is_inserted_in_the_transaction_of_its_event(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox)
        written = await rows(
            sandbox,
            "select n.xmin = v.xmin as together from retoma.notifications n join retoma.reviews v on v.id = n.review "
            "where v.id = $1",
            await start_review(sandbox),
        )
        assert [row["together"] for row in written] == [True]


async def test_nothing_is_sent_for_what_was_decided_meanwhile(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox)
        review = await start_review(sandbox)
        await sandbox.client.reviews.decide(review, Decision("approve", by="Bia", seen=1))
        await skip_minutes(sandbox, 1)
        await sandbox.work(advance_clock=False)
        await sandbox.send_notifications(server.settings())
        assert server.mails == []
        assert await list_cancelled(sandbox) == ["decided"]


async def test_a_decision_that_is_undone_leaves_its_review_to_be_reported(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox)
        review = await start_review(sandbox)
        await sandbox.client.reviews.decide(review, Decision("approve", by="Bia", seen=1, undo=timedelta(seconds=10)))
        await sandbox.send_notifications(server.settings())
        assert server.mails == []
        await sandbox.client.reviews.undo(review, by="Bia")
        await skip_minutes(sandbox, 2)
        await sandbox.send_notifications(server.settings())
        assert len(server.mails) == 1


async def test_a_run_that_was_rerun_is_not_reported_as_failed(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(failing()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox, role=Role.OPERATOR)
        run = await sandbox.run("fails")
        await sandbox.client.runs.rerun_failed(run.id, by="Bia")
        await sandbox.send_notifications(server.settings())
        assert server.mails == []
        assert await list_cancelled(sandbox) == ["the run is running"]


async def test_a_person_who_lost_the_role_receives_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        person = await add_person(sandbox)
        await start_review(sandbox)
        await people.remove_role(sandbox.database, person, None)
        await sandbox.send_notifications(server.settings())
        assert server.mails == []


async def test_a_burst_becomes_one_message(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox)
        await start_review(sandbox, "first")
        await sandbox.send_notifications(server.settings())
        for topic in ("second", "third", "fourth"):
            await start_review(sandbox, topic)
        await sandbox.send_notifications(server.settings())
        assert len(server.mails) == 1
        await skip_minutes(sandbox, 1.1)
        await sandbox.send_notifications(server.settings())
        assert len(server.mails) == 2
        assert all(topic in str(server.mails[1].get_body(("plain",))) for topic in ("second", "third", "fourth"))


async def test_a_message_is_claimed_by_one_of_two_senders(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        for name in ("Ana", "Bia", "Caio", "Davi"):
            await add_person(sandbox, name)
        await start_review(sandbox)
        await asyncio.gather(*(sandbox.send_notifications(server.settings()) for _ in range(4)))
        assert sorted(server.recipients) == [f"{name}@example.com" for name in ("ana", "bia", "caio", "davi")]


async def _assign(sandbox: object, review: object, *, person: int | None = None, role: str | None = None) -> None:
    await rows(
        sandbox,  # type: ignore[arg-type]
        "update retoma.reviews set assigned_person = $2, assigned_role = $3 where id = $1",
        review,
        person,
        role,
    )
