"""Reviews are assigned to people and roles, and escalate to roles."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retoma import Pipeline
from retoma.errors import InvalidInput
from retoma.records import Review
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import value

note = Pipeline("note")


@note.step
def draft() -> str:
    return "words"


note.review("approval", of=draft, escalate=timedelta(hours=2), escalate_to="operator")


async def open_review(sandbox: Sandbox) -> Review:
    await sandbox.client.start(note, tenant="blog")
    await sandbox.work(advance_clock=False)
    (review,) = await sandbox.client.reviews.list()
    return review


async def test_a_review_is_assigned_to_a_person_by_address(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(note) as sandbox:
        review = await open_review(sandbox)
        ana = await sandbox.client.people.create("Ana Souza", "ana@example.com", role="reviewer", tenant="blog")
        assert (await sandbox.client.reviews.assign(review.id, "ANA@example.com")).assignee == "Ana Souza"
        assert await value(sandbox, "select assigned_person from retoma.reviews") == ana.id
        assert (await sandbox.client.reviews.assign(review.id, None)).assignee is None
        assert await value(sandbox, "select assigned_person from retoma.reviews") is None


async def test_a_review_is_assigned_to_a_role(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(note) as sandbox:
        review = await open_review(sandbox)
        assert (await sandbox.client.reviews.assign(review.id, "reviewer")).assignee == "reviewer"
        assert await value(sandbox, "select assigned_role from retoma.reviews") == "reviewer"


async def test_an_unknown_assignee_is_refused_with_the_nearest(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(note) as sandbox:
        review = await open_review(sandbox)
        await sandbox.client.people.create("Ana", "ana@example.com", role="reviewer", tenant="blog")
        await sandbox.client.people.create("Bea", "bea@example.com", role="viewer", tenant="blog")
        with pytest.raises(InvalidInput, match=r"did you mean 'ana@example.com'\?"):
            await sandbox.client.reviews.assign(review.id, "anna@example.com")
        with pytest.raises(InvalidInput, match="may not decide reviews of 'blog'"):
            await sandbox.client.reviews.assign(review.id, "Bea")


async def test_a_review_escalates_to_a_role(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(note) as sandbox:
        review = await open_review(sandbox)
        await sandbox.client.people.create("Ana", "ana@example.com", role="reviewer", tenant="blog")
        await sandbox.client.reviews.assign(review.id, "Ana")
        await sandbox.clock.advance(timedelta(hours=3))
        await sandbox.work(advance_clock=False)
        assert (await sandbox.client.reviews.get(review.id)).assignee == "operator"
        assert await value(sandbox, "select assigned_role from retoma.reviews") == "operator"
        assert await value(sandbox, "select assigned_person from retoma.reviews") is None
