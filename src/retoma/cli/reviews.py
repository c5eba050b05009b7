"""`retoma reviews ...`: what waits for people, and deciding it."""

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

reviews = typer.Typer(no_args_is_help=True, help="Look at what waits for people, and decide it.")
ReviewId = Annotated[str, typer.Argument(metavar="REVIEW", help="Its id, or as much of its beginning as is unique.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides.")]
Undo = Annotated[
    str, typer.Option("--undo", metavar="TIME", help="Let it take effect after so long, to be undone until then: 10s.")
]
Seen = Annotated[int | None, typer.Option("--seen", help="Only if it is of this revision.")]
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
    Column("what"),
    Column("by"),
    Column("notes", formatter=lambda said: printing.format_value(said, 100)),
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
        typer.Option("--state", metavar="STATE", help="Those in this state; may be repeated. Default: open."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only those of this run.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only those of this pipeline.")] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only those of this step.")] = None,
    assignee: Annotated[str | None, typer.Option("--assignee", help="Only this person's.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_REVIEWS, help="At most so many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="Only those opened after this one.")] = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List what waits for people, the oldest first.

    \b
    retoma reviews list
    retoma reviews list --step final_review --assignee ana -o json
    """
    wanted = {"pipeline": pipeline, "step": step, "assignee": assignee, "tenant": tenant, "limit": limit}
    run_async(_list(state or [ReviewState.OPEN], run, after, wanted, output))


@reviews.command()
def show(review: ReviewId, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show one review: what it is about, where it may go back to, and what was said before."""
    run_async(_show(review, output))


@reviews.command()
def approve(
    review: Annotated[str | None, typer.Argument(metavar="REVIEW", help="Which; or --all-open.")] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", metavar="JSON", help="What is approved instead, or the form; or @file, or - for stdin."
        ),
    ] = None,
    notes: Annotated[str, typer.Option("--notes", help="Kept with the decision.")] = "",
    all_open: Annotated[bool, typer.Option("--all-open", help="All that are open of --step, each by itself.")] = False,
    step: Annotated[str | None, typer.Option("--step", help="With --all-open: those of this step.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="With --all-open: of this pipeline.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="With --all-open: of this tenant.")] = None,
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = COMMAND_LINE,
    app: AppOption = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Approve: the run goes on. A form or --value needs the application, which checks it, and is refused without.

    It is found by --app, RETOMA_APP or retoma.toml, or where a server runs that serves it with this RETOMA_HOME.

    Exits with 4 if somebody else was first; of several, with 1 if one was refused.

    \b
    retoma reviews approve 5f1c
    retoma reviews approve 5f1c --value '{"thumbnail": 1}'
    retoma reviews approve --all-open --step good_outline
    """
    if (review is None) != all_open or all_open != (step is not None):
        raise typer.BadParameter("say which: one review, or --all-open with --step")
    edited = {} if value is None else {"value": read_json("--value", value)}
    later = read_duration("--undo", undo)
    decision = Decision("approve", by=by, notes=notes, seen=seen, via=VIA, undo=later, **edited)
    wanted: dict[str, Any] = {"step": step, "pipeline": pipeline, "tenant": tenant, "limit": MAX_REVIEWS}

    async def find_pipelines(client: Client) -> set[str]:
        asked = await client.reviews.list(**wanted) if review is None else [await _find_review(client, review)]
        return {each.pipeline for each in asked if edited or each.has_form}

    loaded = load_application(app, read_settings(), find_pipelines)
    if review is not None:
        run_async(_decide(loaded, review, decision, output))
    else:
        run_async(_decide_all(loaded, wanted, decision, output))


@reviews.command("send-back")
def send_back(
    review: ReviewId,
    notes: Annotated[str, typer.Option("--notes", help="What should become better.")] = "",
    to: Annotated[str | None, typer.Option("--to", metavar="STEP", help="The step that it goes back to.")] = None,
    item: Annotated[list[str] | None, typer.Option("--item", help="Only this item; may be repeated.")] = None,
    comment: Annotated[
        list[str] | None,
        typer.Option("--comment", metavar="'1:23 TEXT'", help="About a moment of it, or 1:23-1:40; may be repeated."),
    ] = None,
    extra: Annotated[
        str | None,
        typer.Option("--extra", metavar="JSON", help="What the feedback form asks for; or @file, or - for stdin."),
    ] = None,
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = COMMAND_LINE,
    app: AppOption = None,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Send work back: it is made anew with what the notes say, and then asked for again.

    It needs the application, which knows what feedback its steps can follow: --app, RETOMA_APP or retoma.toml, or a
    server that serves it with this RETOMA_HOME.

    \b
    retoma reviews send-back 5f1c --notes "shorter, and warmer" --to script
    retoma reviews send-back 5f1c --notes "calmer" --extra '{"rate": 0.9}'
    retoma reviews send-back 5f1c --comment "0:12 too loud" --comment "1:23-1:40 cut this"
    """
    filled = {} if extra is None else read_object("--extra", extra)
    later = read_duration("--undo", undo)
    decision = Decision(
        "send_back",
        by=by,
        notes=notes,
        to=to,
        items=item,
        comments=list(timecodes.parse_comments("\n".join(comment or []))),
        seen=seen,
        via=VIA,
        undo=later,
        extra=filled,
    )

    async def find_pipelines(client: Client) -> set[str]:
        return {(await _find_review(client, review)).pipeline}

    run_async(_decide(require_application(app, read_settings(), find_pipelines), review, decision, output))


@reviews.command()
def reject(
    review: ReviewId,
    notes: Annotated[str, typer.Option("--notes", help="Why.")],
    seen: Seen = None,
    undo: Undo = "0s",
    by: By = COMMAND_LINE,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Reject: the run ends as rejected.

    \b
    retoma reviews reject 5f1c --notes "off topic"
    """
    decision = Decision("reject", by=by, notes=notes, seen=seen, via=VIA, undo=read_duration("--undo", undo))
    run_async(_decide(None, review, decision, output))


@reviews.command()
def undo(review: ReviewId, by: By = COMMAND_LINE, output: ListOutput = ListFormat.TABLE) -> None:
    """Take a decision back before it takes effect. Exits with 4 if that is too late."""
    run_async(_undo(review, by, output))


@reviews.command()
def claim(review: ReviewId, by: By = COMMAND_LINE, output: ListOutput = ListFormat.TABLE) -> None:
    """Let others see for ten minutes that you look at it, unless somebody else does; it keeps nobody from deciding.

    \b
    retoma reviews claim 5f1c --by ana
    """
    run_async(_claim(review, by, output))


@reviews.command()
def assign(
    review: ReviewId,
    assignee: Annotated[str | None, typer.Argument(metavar="NAME", help="Whose it is. Default: nobody's.")] = None,
    by: By = COMMAND_LINE,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Let a review be somebody's; others may still decide it.

    \b
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
    printing.print_rows(rows, columns, output, "nothing waits for a person")
    if output is ListFormat.TABLE and len(found) == filters["limit"]:
        printing.stderr().print(f"newer ones: --after {found[-1].id}")


async def _load_about(client: Client, review: Review) -> Row:
    return {"about": (await client.runs.get(review.run)).about}


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
        console.print(f"\nasked because  {printing.format_value(review.reason, 400)}")
    if review.can_send_back_to:
        most = "" if review.max_revisions is None else f" of {review.max_revisions}"
        times = f"went back {review.times_sent_back}{most} times"
        console.print(f"\nmay go back to  {escape_text(', '.join(review.can_send_back_to))}; {times}")
    _print_decision(console, review)
    console.print()
    console.print(printing.make_table([_event_row(event) for event in history], _HISTORY_COLUMNS))


def _print_decision(console: Console, review: Review) -> None:
    """What was decided beside the notes, which the history has."""
    if review.back_to:
        only = f"; only {', '.join(review.back_items)}" if review.back_items else ""
        console.print(f"\nwent back to  {escape_text(review.back_to + only)}", soft_wrap=True)
    if said := {name: value for name, value in (review.feedback or {}).items() if value != []}:
        _print_value(console, "with", said)
    if review.value is not None:
        _print_value(console, "approved was", review.value)


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
        ended = await client.reviews.decide_many({review.id: decision for review in found})
    printing.print_rows(
        [_outcome_row(one) for one in ended], _OUTCOME_COLUMNS, output, "nothing of it waits for a person"
    )
    if any(one.error for one in ended):
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
    printing.print_rows([_to_row(claimed)], [_COLUMNS[0], Column("claimed_by", "looks at it")], output, "")


async def _assign(text: str, assignee: str | None, by: str, output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        assigned = await client.reviews.assign((await _find_review(client, text)).id, assignee, by=by)
    printing.print_rows([_to_row(assigned)], _COLUMNS, output, "")


async def _find_review(client: Client, text: str) -> Review:
    """The one review whose id begins like this."""
    found: list[UUID] = await client.reviews.find(text, limit=4)
    if not found:
        raise NotFound(f"there is no review {escape_text(text)!r}")
    if len(found) > 1:
        raise typer.BadParameter(f"{text!r} fits several reviews: {', '.join(map(str, found[:3]))}; give more")
    return await client.reviews.get(found[0])


def _to_row(review: Review) -> Row:
    return vars(review)


def _outcome_row(decided: DecisionResult) -> Row:
    now = decided.current
    return {
        "review": decided.review,
        "state": now.state if now else None,
        "decided_by": now.decided_by if now else None,
        "error": None if decided.error is None else str(decided.error),
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
