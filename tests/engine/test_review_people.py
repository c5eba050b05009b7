"""Reviews know people by number: neither a new name nor a namesake changes whose a review is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from retoma import Pipeline
from retoma.engine.reviews import Decision
from retoma.errors import Conflict
from retoma.records import Actor, ActorKind, Person
from retoma.store import people
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
story = Pipeline("story")


@story.step
def draft() -> str:
    return "once upon a time"


approved = story.review("approved", of=draft)


def acting(sandbox: Sandbox, person: Person) -> Any:
    return sandbox.client.acting_as(Actor(ActorKind.PERSON, str(person.id), person.name))


async def add(sandbox: Sandbox, email: str) -> Person:
    """Add a person called Ana Lima, as the identity provider may know several."""
    person = await people.add_person(sandbox.database, name="Ana Lima", email=email)
    assert person is not None
    return await sandbox.client.people.set_role(email, "reviewer", tenant="default")


async def start_reviews(sandbox: Sandbox, count: int) -> list[Any]:
    for _ in range(count):
        await sandbox.client.start(story)
    await sandbox.work()
    return [each.id for each in await sandbox.client.reviews.list()]


async def test_a_new_name_keeps_what_is_assigned_claimed_and_undoable(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(story) as sandbox:
        ana = await add(sandbox, "ana@example.com")
        assigned, claimed, decided = await start_reviews(sandbox, 3)
        await sandbox.client.reviews.assign(assigned, "ana@example.com")
        await acting(sandbox, ana).reviews.claim(claimed)
        undo = timedelta(minutes=1)
        await acting(sandbox, ana).reviews.decide(decided, Decision("approve", by=ana.name, via="page", undo=undo))
        await sandbox.client.people.update_profile("ana@example.com", name="Ana Souza")
        renamed = replace(ana, name="Ana Souza")
        mine = await sandbox.client.reviews.list_inbox(assignees=["Ana Souza"], person=ana.id)
        assert [(each.id, each.assignee) for each in mine] == [(assigned, "Ana Souza")]
        assert (await sandbox.client.reviews.get(claimed)).claimed_by == "Ana Souza"
        assert await acting(sandbox, renamed).reviews.claim(claimed) == "Ana Souza"
        (undoable,) = await acting(sandbox, renamed).reviews.list_undoable(by="Ana Souza")
        assert (undoable.entry.id, undoable.entry.decided_by) == (decided, "Ana Lima")
        (together, one) = await sandbox.client.metrics.list_reviewers(BEGINNING)
        assert (one.reviewer, one.decided, one.open, together.decided) == ("Ana Souza", 1, 2, 1)


async def test_namesakes_share_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(story) as sandbox:
        ana, other = await add(sandbox, "ana@example.com"), await add(sandbox, "other@example.com")
        assigned, claimed, decided = await start_reviews(sandbox, 3)
        await sandbox.client.reviews.assign(assigned, "ana@example.com")
        await acting(sandbox, ana).reviews.claim(claimed)
        undo = timedelta(minutes=1)
        await acting(sandbox, ana).reviews.decide(decided, Decision("approve", by=ana.name, via="page", undo=undo))
        (count,) = [each for each in await sandbox.client.reviews.count_inbox() if each.assignee]
        assert count.assigned_person == ana.id
        assert await sandbox.client.reviews.list_inbox(assignees=["Ana Lima"], person=other.id) == []
        assert await acting(sandbox, other).reviews.list_undoable(by="Ana Lima") == []
        await acting(sandbox, other).reviews.claim(claimed)
        (row,) = await rows(sandbox, "select claimed_person from retoma.reviews where id = $1", claimed)
        assert row["claimed_person"] == ana.id
        _, *found = await sandbox.client.metrics.list_reviewers(BEGINNING)
        assert [(each.reviewer, each.decided, each.open) for each in found] == [("Ana Lima", 1, 2)]


async def test_a_decision_has_the_number_of_the_person_until_it_is_undone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(story) as sandbox:
        ana = await add(sandbox, "ana@example.com")
        (review,) = await start_reviews(sandbox, 1)
        decision = Decision("approve", by=ana.name, undo=timedelta(minutes=1))
        for by, expected in ((acting(sandbox, ana), ana.id), (sandbox.client, None)):
            await by.reviews.decide(review, decision)
            (row,) = await rows(sandbox, "select decided_person from retoma.reviews where id = $1", review)
            assert row["decided_person"] == expected
            await by.reviews.undo(review)
            (row,) = await rows(sandbox, "select decided_person from retoma.reviews where id = $1", review)
            assert row["decided_person"] is None


async def test_the_previous_release_decides_without_a_number(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(story) as sandbox:
        (review,) = await start_reviews(sandbox, 1)
        outcome = await rows(
            sandbox,
            "select retoma.decide_review($1, null, 'approved', 'Ana', 'client', 1, 'k', null, null, null, null, null, "
            "interval '0') as outcome",
            review,
        )
        assert outcome[0]["outcome"] == "decided"


@pytest.mark.parametrize("name", ["Ana Lima", "ANA  LIMA", " ána lima", "\N{FULLWIDTH LATIN CAPITAL LETTER A}na Lima"])
async def test_nobody_takes_the_name_of_another_person(open_sandbox: OpenSandbox, name: str) -> None:
    async with open_sandbox(story) as sandbox:
        client = sandbox.client.people
        await client.create("Ana Lima", "ana@example.com")
        await client.create("Bo", "bo@example.com")
        for refused in (
            client.update_profile("bo@example.com", name=name),
            client.create(name, "cal@example.com"),
            client.invite(name, "cal@example.com", role="viewer"),
        ):
            with pytest.raises(Conflict, match="somebody is already called"):
                await refused
        await client.update_profile("ana@example.com", name="Ana LIMA")
