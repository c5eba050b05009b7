"""`retoma reviews ...`: list and decide reviews."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from retoma import timecodes
from retoma.cli import printing
from retoma.cli.command_setup import client_command, read_settings, run_with_client
from retoma.cli.inputs import read_duration, read_json, read_object
from retoma.cli.lookups import find_review, find_run
from retoma.cli.messages import gettext
from retoma.cli.options import (
    BY,
    AppOption,
    By,
    DetailFormat,
    DetailOutput,
    Items,
    ListFormat,
    ListOutput,
    OnlyTenant,
    json_option,
    limit_option,
    state_option,
)
from retoma.cli.printing import Column, Row
from retoma.cli.served_applications import load_application, require_application
from retoma.client import Client
from retoma.engine.reviews import Decision
from retoma.records import DecisionResult, Event, Review, Subject
from retoma.states import ReviewState
from retoma.terminal import escape_text

reviews = typer.Typer(name="reviews", no_args_is_help=True, help="List and decide reviews.")
ReviewId = Annotated[str, typer.Argument(metavar="REVIEW", help="The review's ID or a unique prefix of it.")]
Undo = Annotated[
    str, typer.Option("--undo", metavar="DURATION", help="Delay the effect, such as 10s; until then it can be undone.")
]
Seen = Annotated[int | None, typer.Option("--seen", help="Decide only if the review still has this revision.")]
VIA = "cli"
MAX_REVIEWS = 10_000
MAX_HISTORY = 200

_ABOUT_COLUMN = Column("about", max_length=40)
_COLUMNS = [
    Column("id", "review"),
    Column("pipeline"),
    Column("step"),
    Column("item", max_length=40),
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
    Column("notes", max_length=100),
]
_OUTCOME_COLUMNS = [
    Column("review"),
    Column("state", formatter=printing.format_state),
    Column("decided_by", "decided by"),
    Column("error", max_length=160),
]


@reviews.command("list")
@client_command
async def list_reviews(
    client: Client,
    state: Annotated[list[ReviewState] | None, state_option("reviews", "open")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only reviews of this run.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only reviews of this pipeline.")] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only reviews of this step.")] = None,
    assignee: Annotated[str | None, typer.Option("--assignee", help="Only reviews assigned to this person.")] = None,
    tenant: OnlyTenant = None,
    limit: Annotated[int, limit_option("reviews", MAX_REVIEWS)] = 50,
    after: Annotated[str | None, typer.Option("--after", help="Only reviews opened after this one.")] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List reviews, oldest first.

    \b
    Examples:
      retoma reviews list
      retoma reviews list --step final_review --assignee ana -o json
    """
    found = await client.reviews.list(
        states=state or [ReviewState.OPEN],
        run=None if run is None else await find_run(client, run),
        after=None if after is None else await find_review(client, after),
        pipeline=pipeline,
        step=step,
        assignee=assignee,
        tenant=tenant,
        limit=limit,
    )
    columns, rows = _COLUMNS, [vars(each) for each in found]
    if output is ListFormat.TABLE:
        columns = [_COLUMNS[0], _ABOUT_COLUMN, *_COLUMNS[1:]]
        rows = [vars(each) | {"about": each.run_title or (await client.runs.get(each.run)).about} for each in found]
    newer = f"for newer reviews: --after {found[-1].id}" if len(found) == limit else ""
    printing.print_rows(rows, columns, output, "no matching reviews", next_page=newer)


@reviews.command()
@client_command
async def show(client: Client, review: ReviewId, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show a review with its subject, possible steps to send it back to, and history."""
    found = await find_review(client, review)
    subjects = list((await client.reviews.get_subjects(found)).values())
    events = await client.runs.list_job_events(found.run, found.step, found.item, limit=MAX_HISTORY)
    history = [event for event in reversed(events) if event.kind == "review"]
    if output is DetailFormat.JSON:
        plain = vars(found) | {"subjects": [vars(one) for one in subjects], "history": [vars(one) for one in history]}
        print(printing.to_json(plain, indent=2))
    else:
        _print(found, subjects, history)


@reviews.command()
def approve(
    review: Annotated[
        str | None, typer.Argument(metavar="REVIEW", help="The review's ID or a unique prefix of it.")
    ] = None,
    value: Annotated[str | None, json_option("--value", "An edited result or a filled-in form")] = None,
    notes: Annotated[str, typer.Option("--notes", help="Notes, recorded with the decision.")] = "",
    all_open: Annotated[
        bool, typer.Option("--all-open", help="Approve all open reviews of --step, each on its own.")
    ] = False,
    step: Annotated[str | None, typer.Option("--step", help="With --all-open: only this step.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="With --all-open: only this pipeline.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="With --all-open: only this tenant.")] = None,
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = BY,
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
        found = await client.reviews.list(**filters) if review is None else [await find_review(client, review)]
        return {each.pipeline for each in found if edited or each.has_form}

    async def approve_and_print(client: Client) -> None:
        if review is not None:
            await _decide(client, review, decision, output)
        else:
            await _decide_all(client, await client.reviews.list(**filters), decision, output)

    run_with_client(approve_and_print, load_application(app, read_settings(), find_pipelines))


@reviews.command("send-back")
def send_back(
    review: ReviewId,
    notes: Annotated[str, typer.Option("--notes", help="What to improve.")] = "",
    to: Annotated[str | None, typer.Option("--to", metavar="STEP", help="The step to send the work back to.")] = None,
    item: Items = None,
    comment: Annotated[
        list[str] | None,
        typer.Option(
            "--comment", metavar="'1:23 TEXT'", help="A comment on a moment or a range (1:23-1:40); repeatable."
        ),
    ] = None,
    extra: Annotated[str | None, json_option("--extra", "A filled-in feedback form")] = None,
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = BY,
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
    decision = Decision(
        "send_back",
        by=by,
        notes=notes,
        to=to,
        items=item,
        comments=list(timecodes.parse_comments("\n".join(comment or []))),
        seen=seen,
        via=VIA,
        undo=read_duration("--undo", undo),
        extra=feedback,
    )

    async def find_pipelines(client: Client) -> set[str]:
        return {(await find_review(client, review)).pipeline}

    loaded = require_application(app, read_settings(), find_pipelines)
    run_with_client(lambda client: _decide(client, review, decision, output), loaded)


@reviews.command()
def reject(
    review: ReviewId,
    notes: Annotated[str, typer.Option("--notes", help="The reason.")],
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = BY,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Reject a review. This ends the run, or fails only the item under review.

    On a terminal, says which of the two will happen and asks for confirmation.

    \b
    Examples:
      retoma reviews reject 5f1c --notes "off topic"
      retoma reviews reject 5f1c --notes "blurred" --yes
    """
    decision = Decision("reject", by=by, notes=notes, seen=seen, via=VIA, undo=read_duration("--undo", undo))

    async def confirm_and_reject(client: Client) -> None:
        found = await find_review(client, review)
        if found.is_open and not yes and sys.stdin.isatty():
            question = gettext("%(effect)s Reject?", effect=gettext(found.rejection_effect))
            typer.confirm(question, abort=True, err=True)
        await _decide(client, str(found.id), decision, output)

    run_with_client(confirm_and_reject)


@reviews.command()
@client_command
async def undo(client: Client, review: ReviewId, by: By = BY, output: ListOutput = ListFormat.TABLE) -> None:
    """Undo a decision that has not taken effect yet. Exits with 4 if it is too late."""
    undone = await client.reviews.undo((await find_review(client, review)).id, by=by)
    printing.print_rows([undone], _COLUMNS, output)


@reviews.command()
@client_command
async def claim(client: Client, review: ReviewId, by: By = BY, output: ListOutput = ListFormat.TABLE) -> None:
    """Claim a review for ten minutes, unless somebody else has. Others can still decide it.

    \b
    Example:
      retoma reviews claim 5f1c --by ana
    """
    found = await find_review(client, review)
    await client.reviews.claim(found.id, by=by)
    claimed = await client.reviews.get(found.id)
    printing.print_rows([claimed], [_COLUMNS[0], Column("claimed_by", "claimed by")], output)


@reviews.command()
@client_command
async def assign(
    client: Client,
    review: ReviewId,
    assignee: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The assignee. Omit it to remove the assignment.")
    ] = None,
    by: By = BY,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Assign a review. Others can still decide it.

    \b
    Example:
      retoma reviews assign 5f1c ana
    """
    assigned = await client.reviews.assign((await find_review(client, review)).id, assignee, by=by)
    printing.print_rows([assigned], _COLUMNS, output)


def _print(review: Review, subjects: list[Subject], history: list[Event]) -> None:
    console = printing.stdout()
    console.print(printing.make_table([vars(review)], _COLUMNS))
    for subject in subjects:
        _print_value(console, f"{escape_text(subject.step)}, revision {subject.revision}", subject.value)
    if review.reason:
        console.print(f"\nreason  {printing.format_value(review.reason, 400)}")
    if review.can_send_back_to:
        limit = "" if review.max_revisions is None else f" of at most {review.max_revisions}"
        steps = escape_text(", ".join(review.can_send_back_to))
        console.print(f"\ncan be sent back to  {steps} (sent back: {review.times_sent_back}{limit})")
    if review.is_open:
        console.print(f"\na rejection  {review.rejection_effect}")
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


async def _decide(client: Client, review: str, decision: Decision, output: ListFormat) -> None:
    decided = await client.reviews.decide((await find_review(client, review)).id, decision)
    printing.print_rows([decided], _COLUMNS, output)


async def _decide_all(client: Client, found: list[Review], decision: Decision, output: ListFormat) -> None:
    results = await client.reviews.decide_many({review.id: decision for review in found})
    printing.print_rows([_outcome_row(one) for one in results], _OUTCOME_COLUMNS, output, "no matching reviews")
    if any(one.error for one in results):
        raise typer.Exit(1)


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
