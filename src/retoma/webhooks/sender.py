"""The sender: takes up webhooks that are due, signs and sends them, and says how it went.

Any number of processes may send; none leads. One that dies between sending and recording has its deliveries sent
again, with the same id, once their lease is over.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import SecretStr

from retoma.client import Client
from retoma.define.codec import sentence_of
from retoma.engine.deliveries import Outcome, Verdict, after_answer, after_failure, retry_after
from retoma.errors import DatabaseUnavailable, NoAnswer, NoBody, UnsafeUrl
from retoma.logs import get_logger
from retoma.masking import masked, without_folders
from retoma.outgoing import Answer, Guard, Outgoing, without_values
from retoma.settings import Settings
from retoma.signing import check_secret, headers_for
from retoma.states import DeliveryState
from retoma.store import deliveries, servers
from retoma.store.database import Database
from retoma.store.deliveries import Recorded, Taken
from retoma.store.notify import listen
from retoma.tracebacks import release_frames
from retoma.webhooks.body import body_of

log = get_logger("retoma.webhooks")
TIMEOUT = 10.0
LONGEST_ANSWER = 64_000
KEPT_OF_ANSWER = 1_000
LEASE = timedelta(seconds=30)
MOST_FOR_ONE_HOST = 8
SHORTEST_LOOK, LONGEST_LOOK = 0.5, 2.0  # seconds until the next look, if nobody tells of work


class Sender:
    """Sends until `stop`, which lets what is under way end."""

    def __init__(self, client: Client, settings: Settings, outgoing: Outgoing, *, concurrency: int = 50) -> None:
        self._client = client
        self._database: Database = client.database
        self._pipelines = sorted(client.app.pipelines) if client.app else []
        self._settings = settings
        self._check_secrets()
        self._outgoing = outgoing
        self._concurrency = concurrency
        self._sending: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Send until stopped; a database that is away for a while is waited for."""
        listening = None if self._database.pooled else asyncio.ensure_future(listen(self._database, self._wake.set))
        look = SHORTEST_LOOK
        try:
            while not self._stopping:
                self._wake.clear()
                try:
                    await self._take()
                except Exception as error:  # noqa: BLE001  (what is owed stays owed; the next look tries again)
                    log.warning("webhooks wait", error=error)
                look = SHORTEST_LOOK if await self._woken(within=look) else min(2 * look, LONGEST_LOOK)
        finally:
            if listening is not None:
                listening.cancel()
            await asyncio.gather(*self._sending, *([listening] if listening else []), return_exceptions=True)

    async def _woken(self, within: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                return await self._wake.wait()
        return False

    async def send_due(self) -> int:
        """Send all that is due now, and what that makes due; gives the number of attempts. For tests."""
        sent = 0
        while taken := await self._claim(self._concurrency):
            await asyncio.gather(*map(self._send, taken))
            sent += len(taken)
        return sent

    async def _take(self) -> None:
        room = self._concurrency - len(self._sending)
        if room > 0:
            for taken in await self._claim(room):
                task = asyncio.ensure_future(self._send(taken))
                self._sending.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._wake.set()  # there is room, and the next of the same run may be due

    async def _claim(self, room: int) -> list[Taken]:
        return await deliveries.claim(self._database, self._pipelines, room, MOST_FOR_ONE_HOST, LEASE)

    async def _send(self, taken: Taken) -> None:
        try:
            await self._attempt(taken)
        except DatabaseUnavailable as error:
            log.warning("how a webhook went is not recorded; it is sent again", delivery=str(taken.id), error=error)
        except Exception as error:
            log.exception("how a webhook went cannot be recorded", delivery=str(taken.id), error=error)
            release_frames(error)

    async def _attempt(self, taken: Taken) -> None:
        began = time.monotonic()
        answer, error = None, None
        try:
            body = await self._frozen(taken)
            if body is None:
                return
            answer = await self._post(taken, body)
            verdict = _judged(taken, answer)
        except UnsafeUrl as refused:
            verdict, error = await self._refused(taken), str(refused)
            release_frames(refused)
        except (NoAnswer, NoBody) as failed:
            verdict, error = _failed(taken), str(failed)
            release_frames(failed)
        except DatabaseUnavailable:
            raise
        except Exception as unforeseen:
            # It uses up a try like any other failure: what nobody records is sent for ever.
            log.exception("a webhook cannot be sent", delivery=str(taken.id), error=unforeseen)
            verdict, error = _failed(taken), f"something went wrong here: {type(unforeseen).__name__}: {unforeseen}"
            release_frames(unforeseen)
        await self._record(taken, verdict, timedelta(seconds=time.monotonic() - began), answer, error)

    async def _refused(self, taken: Taken) -> Verdict:
        """Retry if a running server allows the host and only this worker does not: that is not the receiver's fault."""
        hosts = await servers.allowed_hosts(self._database)
        try:
            if self._outgoing.guard.missing(hosts):
                Guard.allow(hosts).check(taken.url)
                return _failed(taken)
        except UnsafeUrl:
            pass
        return Verdict(Outcome.DEAD)

    async def _frozen(self, taken: Taken) -> bytes | None:
        """The body, kept before the first attempt, so that every attempt sends the same. None if it is not ours now."""
        body = taken.body
        if body is None:
            body = await deliveries.freeze(self._database, taken, await self._made(taken))
        return None if body is None else body.encode()

    async def _made(self, taken: Taken) -> str:
        try:
            return await body_of(self._client, taken, self._settings.public_url)
        except DatabaseUnavailable:
            raise
        except Exception as wrong:
            raise NoBody(f"its body cannot be made: {type(wrong).__name__}: {sentence_of(wrong)}") from wrong

    async def _post(self, taken: Taken, body: bytes) -> Answer:
        headers = headers_for(self._secrets(taken), str(taken.id), taken.now, body, attempt=taken.tries)
        return await self._outgoing.request(
            "POST",
            taken.url,
            headers={"content-type": "application/json", **headers},
            content=body,
            timeout=TIMEOUT,
            limit=LONGEST_ANSWER,
        )

    def _secrets(self, taken: Taken) -> list[str]:
        """The newest first."""
        if self._settings.webhook_secret is not None:
            return [each.get_secret_value() for each in self._set_secrets()]
        return [taken.secret, taken.former] if taken.former else [taken.secret]

    def _set_secrets(self) -> list[SecretStr]:
        given = (self._settings.webhook_secret, self._settings.webhook_previous_secret)
        return [each for each in given if each is not None]

    def _check_secrets(self) -> None:
        for secret in self._set_secrets():
            check_secret(secret.get_secret_value())

    async def _record(
        self, taken: Taken, verdict: Verdict, took: timedelta, answer: Answer | None, error: str | None
    ) -> None:
        recorded = await deliveries.record(
            self._database,
            taken,
            outcome=verdict.outcome,
            delay=verdict.delay,
            pause=verdict.pause,
            took=took,
            status=answer.status if answer else None,
            error=_storable(error or _said(answer)),
            answer=_storable(answer.text) if answer else None,
        )
        if recorded is None:
            log.warning("a late end of an attempt is refused: another sender has taken it up", delivery=str(taken.id))
        else:
            _log(taken, recorded, status=answer.status if answer else None, error=error or _said(answer))


def _log(taken: Taken, recorded: Recorded, *, status: int | None, error: str | None) -> None:
    """One line for each attempt, so that the log alone tells what became of a webhook. Values in its URL are masked."""
    about: dict[str, Any] = {
        "run": str(taken.run),
        "attempt": taken.attempt,
        "type": taken.event,
        "delivery": str(taken.id),
        "url": without_values(taken.url),
        "status": status,
    }
    match recorded.state:
        case DeliveryState.DELIVERED:
            log.info("webhook delivered", **about)
        case DeliveryState.DEAD:
            log.error("webhook given up", **about, error=error)
        case _:
            wait = None if recorded.retry_in is None else round(recorded.retry_in.total_seconds(), 1)
            log.warning("webhook failed", **about, error=error, retry_in_seconds=wait)
    if recorded.disabled:
        log.warning("webhook endpoint disabled", endpoint=taken.endpoint, url=about["url"])


def _judged(taken: Taken, answer: Answer) -> Verdict:
    wait = retry_after(answer.headers.get("retry-after"), taken.now)
    return after_answer(answer.status, wait, profile=taken.profile, retries=taken.retries, tries=taken.tries)


def _failed(taken: Taken) -> Verdict:
    return after_failure(profile=taken.profile, retries=taken.retries, tries=taken.tries)


def _said(answer: Answer | None) -> str | None:
    if answer is None or answer.is_success:
        return None
    if 300 <= answer.status < 400:
        return f"it answered {answer.status}: redirects are not followed"
    return f"it answered {answer.status}"


def _storable(text: str | None) -> str | None:
    """Without secrets and folders: the application's own body may fail with one, and a receiver may send ours back."""
    return None if text is None else without_folders(masked(text)).replace("\0", "")[:KEPT_OF_ANSWER]
