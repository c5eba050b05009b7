"""`retoma reviews ...`: list and decide reviews."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from retoma.app import App
from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.inputs import read_duration, read_json, read_object
from retoma.cli.options import AppOption, DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column, Row
from retoma.cli.runs import find_run
from retoma.cli.served_applications import load_application, require_application
from retoma.client import Client
from retoma.engine.reviews import Decision
from retoma.errors import NotFound
from retoma.records import DecisionResult, Event, Review, Subject
from retoma.server.pages import timecodes
from retoma.states import ReviewState
from retoma.terminal import escape_text

reviews = typer.Typer(no_args_is_help=True, help="List and decide reviews.")
ReviewId = Annotated[str, typer.Argument(metavar="REVIEW", help="The review's ID or a unique prefix of it.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Your name, recorded with the action.")]
Undo = Annotated[
    str, typer.Option("--undo", metavar="DURATION", help="Delay the effect, such as 10s; until then it can be undone.")
]
Seen = Annotated[int | None, typer.Option("--seen", help="Decide only if the review still has this revision.")]
COMMAND_LINE = "command line"
VIA = "cli"
MAX_REVIEWS = 10_000
MAX_HISTORY = 200

_ABOUT_COLUMN = Column("about", formatter=lambda about: printing.format_value(about, 40))
_COLUMNS = [
    Column("id", "review"),
    Column("pipeline"),
    Column("step"),
    Column("item", formatter=lambda item: printing.format_value(item, 40)),
    Column("tenant"),
    Column("state", formatter=printing.format_state),
    Column("opened_at", "opened", printing.format_time),
    Column("due_at", "due", printing.format_time),
    Column("assignee"),
    Column("decided_by", "decided by"),
    Column("run"),
]
_HISTORY_COLUMNS = [
    Column("at", formatter=printing.format_time),
    Column("revision"),
    Column("what", "event"),
    Column("by"),
    Column("notes", formatter=lambda notes: printing.format_value(notes, 100)),
]
_OUTCOME_COLUMNS = [
    Column("review"),
    Column("state", formatter=printing.format_state),
    Column("decided_by", "decided by"),
    Column("error", formatter=lambda error: printing.format_value(error, 160)),
]


@reviews.command("list")
def list_reviews(
    state: Annotated[
        list[ReviewState] | None,
        typer.Option("--state", metavar="STATE", help="Only reviews in this state; repeatable. Default: open."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only reviews of this run.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only reviews of this pipeline.")] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only reviews of this step.")] = None,
    assignee: Annotated[str | None, typer.Option("--assignee", help="Only reviews assigned to this person.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_REVIEWS, help="Maximum number of reviews.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="Only reviews opened after this one.")] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List reviews, oldest first.

    \b
    Examples:
      retoma reviews list
      retoma reviews list --step final_review --assignee ana -o json
    """
    filters = {"pipeline": pipeline, "step": step, "assignee": assignee, "tenant": tenant, "limit": limit}
    run_async(_list(state or [ReviewState.OPEN], run, after, filters, output))


@reviews.command()
def show(review: ReviewId, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show a review with its subject, possible steps to send it back to, and history."""
    run_async(_show(review, output))


@reviews.command()
def approve(
    review: Annotated[
        str | None, typer.Argument(metavar="REVIEW", help="The review's ID or a unique prefix of it.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", metavar="JSON", help="An edited result or a filled-in form: JSON, @file, or - for stdin."
        ),
    ] = None,
    notes: Annotated[str, typer.Option("--notes", help="Notes, recorded with the decision.")] = "",
    all_open: Annotated[
        bool, typer.Option("--all-open", help="Approve all open reviews of --step, each on its own.")
    ] = False,
    step: Annotated[str | None, typer.Option("--step", help="With --all-open: only this step.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="With --all-open: only this pipeline.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="With --all-open: only this tenant.")] = None,
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = COMMAND_LINE,
    app: AppOption = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Approve a review. The run continues.

    A form or --value needs the application, which validates it.

    Exits with 4 if the review is already decided. With --all-open, exits with 1 if a decision fails.

    \b
    Examples:
      retoma reviews approve 5f1c
      retoma reviews approve 5f1c --value '{"thumbnail": 1}'
      retoma reviews approve --all-open --step good_outline
    """
    if (review is None) != all_open or all_open != (step is not None):
        raise typer.BadParameter("name a REVIEW, or use --all-open with --step")
    edited = {} if value is None else {"value": read_json("--value", value)}
    delay = read_duration("--undo", undo)
    decision = Decision("approve", by=by, notes=notes, seen=seen, via=VIA, undo=delay, **edited)
    filters: dict[str, Any] = {"step": step, "pipeline": pipeline, "tenant": tenant, "limit": MAX_REVIEWS}

    async def find_pipelines(client: Client) -> set[str]:
        found = await client.reviews.list(**filters) if review is None else [await _find_review(client, review)]
        return {each.pipeline for each in found if edited or each.has_form}

    loaded = load_application(app, read_settings(), find_pipelines)
    if review is not None:
        run_async(_decide(loaded, review, decision, output))
    else:
        run_async(_decide_all(loaded, filters, decision, output))


@reviews.command("send-back")
def send_back(
    review: ReviewId,
    notes: Annotated[str, typer.Option("--notes", help="What to improve.")] = "",
    to: Annotated[str | None, typer.Option("--to", metavar="STEP", help="The step to send the work back to.")] = None,
    item: Annotated[list[str] | None, typer.Option("--item", help="Only this item; repeatable.")] = None,
    comment: Annotated[
        list[str] | None,
        typer.Option(
            "--comment", metavar="'1:23 TEXT'", help="A comment on a moment or a range (1:23-1:40); repeatable."
        ),
    ] = None,
    extra: Annotated[
        str | None,
        typer.Option("--extra", metavar="JSON", help="A filled-in feedback form: JSON, @file, or - for stdin."),
    ] = None,
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = COMMAND_LINE,
    app: AppOption = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Send work back with feedback. The step runs again, and the review opens again.

    Needs the application, which knows what feedback its steps support.

    \b
    Examples:
      retoma reviews send-back 5f1c --notes "shorter, and warmer" --to script
      retoma reviews send-back 5f1c --notes "calmer" --extra '{"rate": 0.9}'
      retoma reviews send-back 5f1c --comment "0:12 too loud" --comment "1:23-1:40 cut this"
    """
    feedback = {} if extra is None else read_object("--extra", extra)
    delay = read_duration("--undo", undo)
    decision = Decision(
        "send_back",
        by=by,
        notes=notes,
        to=to,
        items=item,
        comments=list(timecodes.parse_comments("\n".join(comment or []))),
        seen=seen,
        via=VIA,
        undo=delay,
        extra=feedback,
    )

    async def find_pipelines(client: Client) -> set[str]:
        return {(await _find_review(client, review)).pipeline}

    run_async(_decide(require_application(app, read_settings(), find_pipelines), review, decision, output))


@reviews.command()
def reject(
    review: ReviewId,
    notes: Annotated[str, typer.Option("--notes", help="The reason.")],
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = COMMAND_LINE,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Reject a review. The run ends as rejected.

    \b
    Example:
      retoma reviews reject 5f1c --notes "off topic"
    """
    decision = Decision("reject", by=by, notes=notes, seen=seen, via=VIA, undo=read_duration("--undo", undo))
    run_async(_decide(None, review, decision, output))


@reviews.command()
def undo(review: ReviewId, by: By = COMMAND_LINE, output: ListOutput = ListFormat.TABLE) -> None:
    """Undo a decision that has not taken effect yet. Exits with 4 if it is too late."""
    run_async(_undo(review, by, output))


@reviews.command()
def claim(review: ReviewId, by: By = COMMAND_LINE, output: ListOutput = ListFormat.TABLE) -> None:
    """Claim a review for ten minutes, unless somebody else has. Others can still decide it.

    \b
    Example:
      retoma reviews claim 5f1c --by ana
    """
    run_async(_claim(review, by, output))


@reviews.command()
def assign(
    review: ReviewId,
    assignee: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The assignee. Omit it to remove the assignment.")
    ] = None,
    by: By = COMMAND_LINE,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Assign a review. Others can still decide it.

    \b
    Example:
      retoma reviews assign 5f1c ana
    """
    run_async(_assign(review, assignee, by, output))


async def _list(
    states: list[ReviewState], run: str | None, after: str | None, filters: dict[str, Any], output: ListFormat
) -> None:
    async with open_client(read_settings()) as client:
        found = await client.reviews.list(
            states=states,
            run=None if run is None else await find_run(client, run),
            after=None if after is None else await _find_review(client, after),
            **filters,
        )
        is_table = output is ListFormat.TABLE
        rows = [{**_to_row(review), **(await _load_about(client, review) if is_table else {})} for review in found]
    columns = [_COLUMNS[0], _ABOUT_COLUMN, *_COLUMNS[1:]] if is_table else _COLUMNS
    printing.print_rows(rows, columns, output, "no matching reviews")
    if output is ListFormat.TABLE and len(found) == filters["limit"]:
        printing.stderr().print(f"for newer reviews: --after {found[-1].id}")


async def _load_about(client: Client, review: Review) -> Row:
    return {"about": review.run_title or (await client.runs.get(review.run)).about}


async def _show(text: str, output: DetailFormat) -> None:
    async with open_client(read_settings()) as client:
        review = await _find_review(client, text)
        subjects = list((await client.reviews.get_subjects(review)).values())
        events = await client.runs.list_job_events(review.run, review.step, review.item, limit=MAX_HISTORY)
    history = [event for event in reversed(events) if event.kind == "review"]
    if output is DetailFormat.JSON:
        plain = vars(review) | {"subjects": [vars(one) for one in subjects], "history": [vars(one) for one in history]}
        print(printing.to_json(plain, indent=2))
    else:
        _print(review, subjects, history)


def _print(review: Review, subjects: list[Subject], history: list[Event]) -> None:
    console = printing.stdout()
    console.print(printing.make_table([_to_row(review)], _COLUMNS))
    for subject in subjects:
        _print_value(console, f"{escape_text(subject.step)}, revision {subject.revision}", subject.value)
    if review.reason:
        console.print(f"\nreason  {printing.format_value(review.reason, 400)}")
    if review.can_send_back_to:
        limit = "" if review.max_revisions is None else f" of at most {review.max_revisions}"
        steps = escape_text(", ".join(review.can_send_back_to))
        console.print(f"\ncan be sent back to  {steps} (sent back: {review.times_sent_back}{limit})")
    _print_decision(console, review)
    console.print()
    console.print(printing.make_table([_event_row(event) for event in history], _HISTORY_COLUMNS))


def _print_decision(console: Console, review: Review) -> None:
    """Print the decision without its notes, which the history shows."""
    if review.back_to:
        only = f"; only {', '.join(review.back_items)}" if review.back_items else ""
        console.print(f"\nsent back to  {escape_text(review.back_to + only)}", soft_wrap=True)
    if feedback := {name: value for name, value in (review.feedback or {}).items() if value != []}:
        _print_value(console, "feedback", feedback)
    if review.value is not None:
        _print_value(console, "approved value", review.value)


def _print_value(console: Console, title: str, value: Any) -> None:
    console.print(f"\n{title}")
    for line in printing.to_json(value, indent=2).splitlines():
        console.print(f"  {line}", soft_wrap=True)


async def _decide(app: App | None, text: str, decision: Decision, output: ListFormat) -> None:
    async with open_client(read_settings(), app) as client:
        review = await _find_review(client, text)
        decided = await client.reviews.decide(review.id, decision)
    printing.print_rows([_to_row(decided)], _COLUMNS, output, "")


async def _decide_all(app: App | None, filters: Mapping[str, Any], decision: Decision, output: ListFormat) -> None:
    async with open_client(read_settings(), app) as client:
        found = await client.reviews.list(**filters)
        results = await client.reviews.decide_many({review.id: decision for review in found})
    printing.print_rows([_outcome_row(one) for one in results], _OUTCOME_COLUMNS, output, "no matching reviews")
    if any(one.error for one in results):
        raise typer.Exit(1)


async def _undo(text: str, by: str, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        undone = await client.reviews.undo((await _find_review(client, text)).id, by=by)
    printing.print_rows([_to_row(undone)], _COLUMNS, output, "")


async def _claim(text: str, by: str, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        review = await _find_review(client, text)
        await client.reviews.claim(review.id, by=by)
        claimed = await client.reviews.get(review.id)
    printing.print_rows([_to_row(claimed)], [_COLUMNS[0], Column("claimed_by", "claimed by")], output, "")


async def _assign(text: str, assignee: str | None, by: str, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        assigned = await client.reviews.assign((await _find_review(client, text)).id, assignee, by=by)
    printing.print_rows([_to_row(assigned)], _COLUMNS, output, "")


async def _find_review(client: Client, text: str) -> Review:
    """Return the only review whose ID starts with `text`."""
    found: list[UUID] = await client.reviews.find(text, limit=4)
    if not found:
        raise NotFound(f"review {escape_text(text)!r} not found")
    if len(found) > 1:
        raise typer.BadParameter(
            f"{text!r} matches several reviews: {', '.join(map(str, found[:3]))}; use a longer prefix"
        )
    return await client.reviews.get(found[0])


def _to_row(review: Review) -> Row:
    return vars(review)


def _outcome_row(result: DecisionResult) -> Row:
    current = result.current
    return {
        "review": result.review,
        "state": current.state if current else None,
        "decided_by": current.decided_by if current else None,
        "error": None if result.error is None else str(result.error),
    }


def _event_row(event: Event) -> Row:
    data = event.data
    items = f"items: {', '.join(data['items'])}" if data.get("items") else None
    return {
        "at": event.at,
        "revision": event.revision,
        "what": data["what"],
        "by": data.get("by"),
        "notes": "; ".join(filter(None, [data.get("notes"), items])) or None,
    }
