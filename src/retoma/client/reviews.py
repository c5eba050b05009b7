"""`client.reviews`: open reviews, and decisions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from uuid import UUID

from retoma.client.audit_values import keep_set, list_changes
from retoma.client.core import NO_TENANT, Namespace, as_list
from retoma.client.file_access import admit_files
from retoma.engine import inbox_state
from retoma.engine import reviews as review_rules
from retoma.engine.reviews import Decision
from retoma.errors import Conflict, InvalidInput, NotFound, RetomaError
from retoma.records import (
    Access,
    ActorKind,
    AuditAction,
    DecisionResult,
    InboxCount,
    InboxEntry,
    Person,
    Review,
    ReviewComment,
    ReviewCount,
    ReviewMetrics,
    Role,
    Scope,
    Subject,
    UndoableDecision,
)
from retoma.states import ReviewState
from retoma.store import inbox, people, reviews
from retoma.store.database import Database
from retoma.store.id_prefixes import find_by_prefix
from retoma.store.inbox import InboxFilter
from retoma.store.reviews import ReviewFilter

REVIEW_CLAIM = timedelta(minutes=10)
MAX_UNDOABLE = 1_000
MAX_LISTED_COMMENTS = 500


class Reviews(Namespace):
    async def get(self, review: UUID, *, tenant: str | None = None) -> Review:
        tenants = await self._core.find_tenants(tenant)
        found = await reviews.list_reviews(self._database, ReviewFilter(tenants=tenants, ids=[review]))
        if not found:
            await self._core.find_owner("review", review)  # raises RoleMissing if it is visible
            raise NotFound(f"there is no review {review}")
        return found[0]

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """Return the newest reviews whose ids start with `prefix`, ignoring dashes and case."""
        return await find_by_prefix(self._database, "reviews", prefix, await self._core.find_tenants(), limit)

    async def count_open(self, *, tenant: str | None = None) -> list[ReviewCount]:
        """Return the number of open reviews by pipeline and step."""
        return await reviews.count_open(self._database, await self._core.find_tenants(tenant))

    async def set_keys(self, keys: Mapping[str, str]) -> None:
        """Set the keys with which the actor of this client works in the inbox; an action that is left out keeps its
        default."""
        actor = self._core.actor
        viewer = f"{actor.kind}:{actor.id}"
        known = await inbox_state.get_settings(self._database, viewer)
        before, after = list_changes(known.get("keys") or {}, keys)
        recording = self._recording(
            "save_settings",
            AuditAction.PERSON_SET_KEYS,
            actor.id if actor.kind is ActorKind.PERSON else None,
            before=before,
            after=after,
            applies=lambda _: True,
        )
        await inbox_state.save_settings(recording, viewer, {"keys": dict(keys)} if keys else {})

    async def get_metrics(self, pipeline: str, since: datetime) -> ReviewMetrics:
        """Return metrics of the planned reviews of a pipeline since then."""
        return await reviews.get_metrics(self._database, pipeline, since, await self._core.find_tenants())

    async def get_subjects(self, review: Review) -> dict[str, Subject]:
        """Return the results under review, by step."""
        await self._core.check_run(review.run)
        return {subject.step: subject for subject in await reviews.list_subjects(self._database, review.id)}

    async def list_comments(self, review: Review) -> list[ReviewComment]:
        """Return the comments with which the run's work was sent back before this revision, the oldest first."""
        await self._core.check_run(review.run)
        return await reviews.list_comments(
            self._database, review.run, review.item, review.revision, MAX_LISTED_COMMENTS
        )

    async def resolve_comment(self, review: UUID, position: int, *, by: str, resolved: bool = True) -> None:
        """Mark a comment as resolved, or as open again. `review` is the one that was sent back with it, `position` its
        place among the comments, from 0. Raise NotFound if there is no such comment."""
        await self.get(review)
        recording = self._recording(
            ("resolve_comment", "reopen_comment"),
            AuditAction.REVIEW_RESOLVE_COMMENT,
            review,
            after={"comment": position, "resolved": resolved},
            applies=bool,
        )
        if not await reviews.set_comment_resolved(recording, review, position, by, resolved):
            raise NotFound(f"review {review} was not sent back with a comment {position}")

    async def decide(self, review: UUID, decision: Decision, *, tenant: str | None = None) -> Review:
        """Decide a review; the first decision wins. Return the updated review.

        Raise AlreadyDecided with the winner, KeyReused if the key came with another decision, Conflict if the reviewer
        saw another revision, FeedbackNotSupported if the step cannot act on the feedback, and InvalidInput if a value
        is not valid. In each case the review stays as it was.
        """
        found = await self.get(review, tenant=tenant)
        application = self._core.app.find_owner(found.pipeline) if self._core.app else None
        pipeline = application.own_pipelines[found.pipeline] if application else None
        resources = await self._core.bind_resources(application, found.tenant) if application else None
        owner = await self._core.find_owner("review", review, tenant)
        await admit_files(self._core, found.tenant, *review_rules.encode_answers(decision), run=found.run)
        await review_rules.decide(
            self._recording_decision(found, decision), found, owner, decision, pipeline, resources, self._core.person
        )
        self._core.starter.notify_workers()
        return await self.get(review)

    async def decide_many(
        self, decisions: Mapping[UUID, Decision], *, tenant: str | None = None
    ) -> list[DecisionResult]:
        """Apply several decisions independently, and return the result of each."""
        return [await self._decide_one(review, decision, tenant) for review, decision in decisions.items()]

    async def undo(self, review: UUID, *, by: str | None = None, tenant: str | None = None) -> Review:
        """Undo a decision before it takes effect; an open review stays open. Raise Conflict if it is too late."""
        owner = await self._core.find_owner("review", review, tenant)
        recording = self._recording("undo_decision", AuditAction.REVIEW_UNDO, review)
        undone = await reviews.undo_decision(recording, review, owner, self._get_author(by))
        if undone is None:
            raise NotFound(f"there is no review {review}")
        found = await self.get(review)
        if not undone and not found.is_open:
            raise Conflict(f"the decision on review {review} has taken effect: it cannot be undone")
        return found

    async def claim(
        self, review: UUID, *, by: str | None = None, duration: timedelta = REVIEW_CLAIM, tenant: str | None = None
    ) -> str | None:
        """Show others that this person is reviewing it. Return the current claimant. Anyone can still decide.

        Without a duration, it ends the claim of this person.
        """
        author, owner = self._get_author(by), await self._core.find_owner("review", review, tenant)
        if owner == NO_TENANT:
            raise NotFound(f"there is no review {review}")
        recording = self._recording(
            "claim_review",
            AuditAction.REVIEW_CLAIM,
            review,
            after=None if duration else {"released": True},
            applies=lambda rows: rows[0]["is_own"],
        )
        return await reviews.claim_review(recording, review, owner, author, self._core.person, duration)

    async def assign(
        self, review: UUID, assignee: str | None, *, by: str | None = None, tenant: str | None = None
    ) -> Review:
        """Assign an open review to a person, by e-mail address or name, or to a role; None removes the assignment.

        It informs: everybody with the role to decide in that tenant still may. Raise InvalidInput for somebody who is
        unknown or may not decide there, naming the nearest. Without any accounts, the assignee is any text.
        """
        before = await self.get(review, tenant=tenant)
        label, person, role = await self._find_assignee(assignee, before.tenant)
        recording = self._recording(
            "assign_review",
            AuditAction.REVIEW_ASSIGN,
            review,
            before={"assignee": before.assignee},
            after={"assignee": label},
            applies=bool,
        )
        owner = await self._core.find_owner("review", review, tenant)
        author = self._get_author(by)
        if not await reviews.assign_review(recording, review, owner, label, author, person=person, role=role):
            raise Conflict(f"review {review} is not open")
        return await self.get(review)

    async def list_assignees(self, review: UUID) -> list[Person] | None:
        """Return the people who may decide this review, or None if there are no accounts."""
        return await self._list_able((await self.get(review)).tenant)

    async def _list_able(self, tenant: str) -> list[Person] | None:
        everybody = await people.list_people(self._database, include_disabled=False)
        able = [each for each in everybody if Access.from_roles(each.roles).permits(Scope.REVIEWS_WRITE, tenant)]
        return able if everybody else None

    async def _find_assignee(self, assignee: str | None, tenant: str) -> tuple[str | None, int | None, Role | None]:
        """Return the name that is shown, and the person or the role."""
        if assignee is None or assignee in list(Role):
            return assignee, None, None if assignee is None else Role(assignee)
        able = await self._list_able(tenant)
        if able is None:
            return assignee, None, None
        for each in able:
            if assignee.strip().lower() == each.email or assignee == each.name:
                return each.name, each.id, None
        known = [*(each.email for each in able), *(each.name for each in able), *map(str, Role)]
        nearest = get_close_matches(assignee, known, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "use the e-mail address of somebody who may, or a role"
        raise InvalidInput(f"{assignee!r:.80} may not decide reviews of {tenant!r:.80}; {hint}")

    def _recording_decision(self, review: Review, decision: Decision) -> Database:
        return self._recording(
            "decide_review",
            AuditAction.REVIEW_DECIDE,
            review.id,
            before={"state": review.state, "revision": review.revision},
            after=keep_set(
                decision=decision.action,
                notes=decision.notes,
                value=decision.value if decision.edits else None,
                to=decision.to,
                items=decision.items,
                comments=decision.comments,
                feedback=decision.extra,
                run=review.run,
                step=review.step,
                via=decision.via,
            ),
            applies=lambda rows: rows[0]["outcome"] == "decided",
        )

    async def _decide_one(self, review: UUID, decision: Decision, tenant: str | None) -> DecisionResult:
        try:
            return DecisionResult(review, await self.decide(review, decision, tenant=tenant))
        except RetomaError as error:
            return DecisionResult(review, error=error)

    async def list_inbox(
        self,
        *,
        tenant: str | None = None,
        pipeline: str | Sequence[str] | None = None,
        step: str | None = None,
        assignees: Sequence[str] | None = None,
        title: str | None = None,
        states: Sequence[ReviewState] = (ReviewState.OPEN,),
        kinds: Sequence[tuple[str, str]] = (),
        overdue: bool = False,
        after: UUID | None = None,
        person: int | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> list[InboxEntry]:
        """Return reviews as people work through them: open ones by kind and urgency, ended ones the latest first.

        `kinds` are pipelines and steps in the order of the work; other kinds come after them. `assignees` may contain
        empty text, for nobody; with `person`, they are the names and roles that stand for that person. `title` is a
        part of the run's title. `overdue` leaves out all that are not.
        For the next page of open reviews pass the id of the last one as `after`: it may have been decided meanwhile.
        """
        wanted = InboxFilter(await self._core.find_tenants(tenant), as_list(pipeline), step, assignees, title, person)
        if ReviewState.OPEN in states:
            return await inbox.list_open(
                self._database, wanted, kinds, overdue=overdue, after=after, offset=offset, limit=limit
            )
        return await inbox.list_ended(self._database, wanted, states, offset=offset, limit=limit)

    async def count_inbox(self, *, tenant: str | None = None, title: str | None = None) -> list[InboxCount]:
        """Return the number of open reviews by kind, tenant and assignee."""
        return await inbox.count_open(self._database, await self._core.find_tenants(tenant), title)

    async def list_undoable(
        self, *, by: str, tenant: str | None = None, limit: int = MAX_UNDOABLE
    ) -> list[UndoableDecision]:
        """Return the decisions that can still be undone, the latest first: those of the person who acts through this
        client, or of somebody without an account by this name."""
        tenants = await self._core.find_tenants(tenant)
        return await inbox.list_undoable(self._database, by, self._core.person, tenants, limit)

    async def list(
        self,
        *,
        tenant: str | None = None,
        run: UUID | None = None,
        pipeline: str | Sequence[str] | None = None,
        step: str | None = None,
        assignee: str | None = None,
        states: Sequence[ReviewState] | None = (ReviewState.OPEN,),
        after: Review | None = None,
        limit: int = 50,
    ) -> list[Review]:
        """Return reviews, by default open ones, oldest first. For the next page pass the last one as `after`.

        `pipeline` is the name of one pipeline, or of several.
        """
        wanted = ReviewFilter(
            tenants=await self._core.find_tenants(tenant),
            run=run,
            pipelines=as_list(pipeline),
            step=step,
            assignee=assignee,
            states=states,
            after_at=after.opened_at if after else None,
            after_id=after.id if after else None,
            limit=limit,
        )
        return await reviews.list_reviews(self._database, wanted)
