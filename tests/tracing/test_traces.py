"""What the traces of runs, requests and webhooks contain."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from retoma import Context, Pipeline, Webhook, checks
from retoma.engine.run_traces import trace_ended_runs
from retoma.outgoing import LOOPBACK, Guard, HttpClient
from retoma.reviews import Decision
from retoma.trace_context import SpanContext, get_run_span_id, parse_traceparent
from retoma.tracing import TRACES, Span
from retoma.tracing.traces import check_traces
from tests.cli.test_doctor import uninstall
from tests.conftest import OpenSandbox
from tests.receiver import receiver
from tests.server.conftest import OpenApi
from tests.server.test_external_work import Host, rendering, start_run
from tests.tracing.collector import Collector
from tests.webhooks.builders import one_step

CALLER = SpanContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


async def test_a_run_and_its_reruns_are_one_trace(open_sandbox: OpenSandbox, received: Collector) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        with received.exporting():
            await trace_ended_runs(sandbox.database)
            run = (await sandbox.run(pipeline, tenant="acme")).id
            await trace_ended_runs(sandbox.database)
            await sandbox.client.runs.rerun(run, "answer")
            await sandbox.work()
            assert await trace_ended_runs(sandbox.database) == 1
            assert await trace_ended_runs(sandbox.database) == 0
    root, again = received.get("run one"), received.get("revision one")
    assert (root.trace, root.parent, root.id) == (run, "", f"{get_run_span_id():016x}")
    assert {name: root.attributes[f"retoma.{name}"] for name in ("run", "pipeline", "tenant", "revision", "state")} == {
        "run": str(run),
        "pipeline": "one",
        "tenant": "acme",
        "revision": 1,
        "state": "completed",
    }
    assert (again.trace, again.parent, again.attributes["retoma.revision"]) == (run, root.id, 2)
    assert [span.parent for span in received.find_all("attempt answer")] == [root.id, again.id]
    start = received.get("start one")
    assert (start.trace, start.parent, start.kind) == (run, root.id, "producer")


async def test_runs_that_ended_while_traces_were_off_are_not_traced(
    open_sandbox: OpenSandbox, received: Collector
) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.run(pipeline)
        with received.exporting():
            assert await trace_ended_runs(sandbox.database) == 0
    assert received.spans == []


async def test_a_failed_run_and_its_attempts_have_errors(open_sandbox: OpenSandbox, received: Collector) -> None:
    pipeline = one_step(fails=True)
    async with open_sandbox(pipeline) as sandbox:
        with received.exporting():
            await trace_ended_runs(sandbox.database)
            await sandbox.run(pipeline)
            await trace_ended_runs(sandbox.database)
    assert received.get("run one").error == "the run failed"
    attempt = received.get("attempt answer")
    assert (attempt.error, attempt.attributes["error.type"]) == ("no more", "GiveUp")


async def test_the_time_that_a_review_waits_is_a_span(open_sandbox: OpenSandbox, received: Collector) -> None:
    pipeline = Pipeline("reviewed")

    @pipeline.step
    def draft() -> str:
        return "a draft"

    pipeline.review("approved", of=draft)
    async with open_sandbox(pipeline) as sandbox:
        with received.exporting():
            await trace_ended_runs(sandbox.database)
            run = (await sandbox.run(pipeline)).id
            (review,) = await sandbox.client.reviews.list()
            await sandbox.clock.set(review.opened_at.replace(hour=13))
            await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
            await sandbox.work()
            await trace_ended_runs(sandbox.database)
    waited = received.get("review approved")
    assert (waited.trace, waited.parent, waited.seconds) == (run, received.get("run reviewed").id, 3600)
    assert waited.attributes["retoma.state"] == "approved"


async def test_a_child_run_is_linked_to_the_run_that_started_it(open_sandbox: OpenSandbox, received: Collector) -> None:
    child, parent = one_step(), Pipeline("parent")

    @parent.step
    async def asked(*, ctx: Context) -> int:
        return int((await ctx.run_child("one"))["answer"])

    async with open_sandbox(child, parent) as sandbox:
        with received.exporting():
            await trace_ended_runs(sandbox.database)
            run = (await sandbox.run(parent)).id
            await trace_ended_runs(sandbox.database)
    linked = received.get("run one")
    assert linked.links == ((run, received.get("run parent").id),)
    assert linked.trace != run
    assert [span.attributes["retoma.state"] for span in received.find_all("attempt asked")] == ["parked", "succeeded"]


async def test_requests_to_providers_name_host_model_and_tokens(open_sandbox: OpenSandbox, received: Collector) -> None:
    pipeline = Pipeline("asking")

    async with receiver() as provider, HttpClient(Guard.from_hosts(LOOPBACK)) as http:

        @pipeline.step
        async def answer(*, ctx: Context) -> int:
            async def ask() -> int:
                return (await http.request("POST", f"{provider.url}/key-in-path?key=in-query", json="a prompt")).status

            status = int(await ctx.once("ask", ask))
            ctx.charge("acme", "poet-2", tokens_in=3, tokens_out=5, micros=2_000)
            ctx.charge("acme", "voice", units=7)
            return status

        async with open_sandbox(pipeline) as sandbox:
            with received.exporting():
                await sandbox.run(pipeline)
    called, attempt = received.get("POST 127.0.0.1"), received.get("attempt answer")
    assert (called.parent, called.kind) == (attempt.id, "client")
    expected = {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": provider.port,
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "poet-2",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 5,
        "retoma.charge.dollars": 0.002,
    }
    assert expected.items() <= called.attributes.items()
    assert received.get("charge acme").attributes["retoma.charge.units"] == 7
    assert "traceparent" not in provider.requests[0].headers
    assert not any(word in body for body in received.bodies for word in (b"key-in-path", b"in-query", b"a prompt"))


async def test_a_webhook_continues_the_trace_of_its_run(open_sandbox: OpenSandbox, received: Collector) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, receiver() as listener:
        with received.exporting():
            await trace_ended_runs(sandbox.database)
            run = (await sandbox.run(pipeline, webhook=Webhook(f"{listener.url}/token-in-path"))).id
            await sandbox.send_webhooks()
            await trace_ended_runs(sandbox.database)
    sent = received.get("webhook run.completed")
    assert (sent.trace, sent.parent, sent.kind) == (run, received.get("run one").id, "client")
    assert parse_traceparent(listener.requests[0].headers["traceparent"]) == sent.context
    assert sent.attributes["http.response.status_code"] == 200
    assert not any(b"token-in-path" in body for body in received.bodies)


async def test_a_request_that_starts_a_run_is_linked_with_it(open_api: OpenApi, received: Collector) -> None:
    with received.exporting("retoma-server"):
        async with open_api() as api:
            run = UUID(await api.start(headers={"traceparent": CALLER.traceparent}))
            await api.get(f"/api/v1/runs/{run}?note=in-query")
            await api.get("/healthz")
    request, start = received.get("POST /api/v1/runs"), received.get("start film")
    assert (request.trace.int, request.parent) == (CALLER.trace_id, f"{CALLER.span_id:016x}")
    assert (request.kind, request.service, request.attributes["http.response.status_code"]) == (
        "server",
        "retoma-server",
        202,
    )
    assert request.links == ((run, f"{get_run_span_id():016x}"),)
    assert (start.trace, start.links) == (run, ((request.trace, request.id),))
    read = received.get("GET /api/v1/runs/{run}")
    assert read.parent == ""
    assert not any(b"in-query" in body for body in received.bodies)
    assert len(received.spans) == 3


async def test_a_callback_is_linked_with_the_attempt_that_waits_for_it(open_api: OpenApi, received: Collector) -> None:
    host = Host()
    with received.exporting("retoma-server"):
        async with open_api(application=rendering(host)) as api:
            run = UUID(await start_run(api))
            for _ in range(2):  # providers repeat their calls
                await api.post(host.callback, key=None, json={}, headers={"traceparent": CALLER.traceparent})
            await api.post("/api/v1/callbacks/guessed-token-of-nobody", key=None, json={})
    attempt = received.get("attempt clip")
    first, repeated, guessed = received.find_all("POST /api/v1/callbacks/{token}")
    assert (first.trace.int, first.parent) == (CALLER.trace_id, f"{CALLER.span_id:016x}")
    assert (attempt.trace, first.links) == (run, ((run, attempt.id),))
    assert (repeated.links, guessed.links) == ((), ())


async def test_fastapi_records_no_spans_of_its_own(open_api: OpenApi, received: Collector) -> None:
    with received.exporting():
        async with open_api() as api:
            await api.post("/api/v1/callbacks/token-in-path", json={})
    assert [span.name for span in received.spans] == ["POST /api/v1/callbacks/{token}"]
    assert not any(b"token-in-path" in body for body in received.bodies)


async def test_log_lines_of_an_attempt_have_its_ids_in_json(
    open_sandbox: OpenSandbox, received: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    from retoma import logs

    pipeline, lines = Pipeline("noting"), []

    @pipeline.step
    def noted() -> None:
        lines.append(logs._add_attempt(None, "", {"event": "x"}))

    async with open_sandbox(pipeline) as sandbox:
        await sandbox.run(pipeline)
        with received.exporting():
            run = (await sandbox.run(pipeline)).id
    off, on = lines
    assert "trace_id" not in off
    assert (on["trace_id"], on["span_id"]) == (run.hex, received.get("attempt noted").id)
    assert "trace_id" not in logs._format_line(None, "", {**on, "level": "info"})


@pytest.mark.parametrize(("share", "expected"), [("0", 0), ("0.5", 100), ("1", 200)])
def test_a_share_of_the_runs_can_be_sampled(received: Collector, share: str, expected: int) -> None:
    from retoma.identifiers import new_run_id

    with received.exporting(OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG=share):
        sampled = sum(TRACES.get_context(new_run_id().int, 1).is_sampled for _ in range(200))
    assert abs(sampled - expected) <= (45 if share == "0.5" else 0)


def test_what_the_sampler_leaves_out_is_not_exported(received: Collector) -> None:
    with received.exporting(OTEL_TRACES_SAMPLER="always_off"):
        context = TRACES.get_context(1, 2)
        TRACES.record(Span("left out", context, None, 1, 2))
        assert context.traceparent.endswith("-00")
    assert received.bodies == []


def test_a_full_queue_drops_spans_and_never_waits(received: Collector) -> None:
    received.opened.clear()
    small = {"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"}
    with received.exporting(**small):
        for number in range(1_000):
            TRACES.record(Span(f"span {number}", TRACES.get_context(1, number + 1), None, 1, 2))
        received.opened.set()
    names = {span.name for span in received.spans}
    assert "span 999" in names
    assert len(names) < 1_000


def test_headers_for_the_collector_are_sent_and_masked(received: Collector) -> None:
    from retoma.masking import mask_secrets

    with received.exporting(OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20collector-key-1"):
        TRACES.record(Span("one", TRACES.get_context(1, 2), None, 1, 2))
        assert "collector-key-1" not in mask_secrets("the key is collector-key-1")
    assert received.headers[0]["authorization"] == "Bearer collector-key-1"


def test_traces_are_off_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with TRACES.exporting("retoma-worker"):
        assert not TRACES.is_on
    assert check_traces().message.startswith("off")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with TRACES.exporting("retoma-worker"):
        assert not TRACES.is_on


def test_an_endpoint_without_the_extra_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uninstall(monkeypatch, "opentelemetry-sdk")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING), TRACES.exporting("retoma-worker"):
        assert not TRACES.is_on
    assert "opentelemetry-sdk is not installed" in caplog.text
    assert "[tracing]" in caplog.text
    assert check_traces().advice.startswith(checks.get_install_command("tracing"))


def test_another_protocol_is_refused_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    found = check_traces()
    assert (found.level, "http/protobuf" in found.advice) == ("warning", True)


def test_doctor_asks_the_collector(received: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
    assert check_traces().level == "ok"
    received.status = 401
    assert check_traces().level == "warning"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (CALLER.traceparent, CALLER),
        (CALLER.traceparent[:-1] + "0", CALLER._replace(is_sampled=False)),
        ("01" + CALLER.traceparent[2:] + "-more", CALLER),
        (CALLER.traceparent + "-more", None),
        ("ff" + CALLER.traceparent[2:], None),
        (f"00-{0:032x}-{1:016x}-01", None),
        (CALLER.traceparent.upper(), None),
        ("", None),
    ],
)
def test_a_traceparent_is_read_as_w3c_defines_it(header: str, expected: SpanContext | None) -> None:
    assert parse_traceparent(header) == expected
