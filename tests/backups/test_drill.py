"""The restore drill: the open work of a backup continues on a new machine, and nothing is done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from retoma.define.file import File
from retoma.errors import WorkerGone
from retoma.records import Channel
from retoma.settings import Settings
from retoma.states import DeliveryState
from retoma.store import restores
from retoma.store.database import Database
from retoma.testing import Sandbox
from tests.acceptance.servers import postgresql_15
from tests.backups.builders import (
    EVENTS,
    POSTER,
    Studio,
    back_up,
    empty_database,
    finish_work,
    get_states,
    new_machine,
    old_machine,
    open_files,
    open_when_started,
    open_work,
    restore,
)
from tests.engine.builders import rows, value
from tests.notifications.builders import add_channels, add_person
from tests.notifications.smtp_server import smtp_server
from tests.receiver import Receiver, receiver

TOPICS = ("in review", "parked", "unknown", "claimed", "new")
NewServer = Callable[[Path], AbstractAsyncContextManager[Database]]


@asynccontextmanager
async def another_folder(home: Path) -> AsyncIterator[Database]:
    async with await Database.open(Settings(_env_file=None, home=home)) as database:
        yield database


@asynccontextmanager
async def another_server(_: Path) -> AsyncIterator[Database]:
    with postgresql_15() as port:
        async with await open_when_started(f"postgresql://retoma@127.0.0.1:{port}/postgres") as database:
            yield database


async def count_webhooks(machine: Sandbox, hook: Receiver) -> Counter[tuple[str, str]]:
    """How often each webhook was received, by the title of its run and its event."""
    titles = {str(run.id): run.title or "" for run in await machine.client.runs.list()}
    return Counter((titles[request.json["data"]["run"]], request.json["type"]) for request in hook.requests)


@pytest.mark.parametrize(("server", "name"), [(another_folder, "backup.tar"), (another_server, "backup")])
async def test_open_work_goes_on_on_a_new_machine_and_nothing_is_done_twice(
    server: NewServer, name: str, tmp_path: Path
) -> None:
    studio = Studio()
    async with receiver() as hook, smtp_server() as mail:
        async with old_machine(studio, tmp_path / "old") as old:
            await add_channels(old, Channel.EMAIL)
            await add_person(old)
            async with open_work(old, studio, hook.url):
                path = await back_up(old, tmp_path / name)
        sent_before = len(hook.requests)
        assert sent_before == 1
        files = open_files(tmp_path / "new")
        async with server(tmp_path / "new") as database:
            restored = await restore(database, files, path)
            assert (restored.database.jobs, restored.files) == (1, 1)
            async with new_machine(studio, database, files) as new:
                await new.send_webhooks()
                await new.send_notifications(mail.settings())
                assert (len(hook.requests), mail.mails) == (sent_before, [])
                await finish_work(new)
                assert await get_states(new) == dict.fromkeys(TOPICS, "completed")
                assert set(Counter(studio.bills + studio.renders).values()) == {1}
                assert (len(studio.bills), len(studio.renders)) == (2 * len(TOPICS), len(TOPICS))
                assert await files.load(await find_poster(new)) == POSTER

                await restores.release_held(database)
                await new.send_webhooks()
                await new.send_webhooks()
                assert await count_webhooks(new, hook) == {(topic, event): 1 for topic in TOPICS for event in EVENTS}


async def find_poster(machine: Sandbox) -> File:
    run = (await machine.client.runs.list())[0]
    return File.model_validate(run.input["poster"])


async def test_what_the_old_machine_did_after_the_backup_is_found_and_not_repeated(tmp_path: Path) -> None:
    studio = Studio()
    async with receiver() as hook:
        async with old_machine(studio, tmp_path / "old") as old:
            async with open_work(old, studio, hook.url):
                path = await back_up(old, tmp_path / "backup.tar")
            await finish_work(old)
            await old.send_webhooks()
            sent = await count_webhooks(old, hook)
        async with empty_database() as database:
            files = open_files(tmp_path / "new")
            await restore(database, files, path)
            async with new_machine(studio, database, files) as new:
                await finish_work(new)
                assert await get_states(new) == dict.fromkeys(TOPICS, "completed")
                await new.send_webhooks()
                # They wait behind the webhooks that are held.
                assert await count_webhooks(new, hook) == sent | {("in review", "run.completed"): 2}
        assert set(Counter(studio.bills + studio.renders).values()) == {1}


async def test_a_worker_of_the_old_machine_cannot_write_into_the_restored_database(tmp_path: Path) -> None:
    studio = Studio()
    async with old_machine(studio, tmp_path / "old") as old, old.manual_worker() as worker:
        await old.client.start("film", {"topic": "claimed"})
        outcomes = await worker.attempt(await worker.claim())
        path = await back_up(old, tmp_path / "backup.tar")
        async with empty_database() as database:
            await restore(database, open_files(tmp_path / "new"), path)
            worker._link._link.drop()
            worker._link._link._database = database  # as after a change of the address
            with pytest.raises(WorkerGone):
                await worker.record_outcomes(outcomes)
            async with new_machine(studio, database) as new, new.manual_worker() as successor:
                (claim,) = await successor.claim()
                assert claim.fence > outcomes[0].claim.fence + 1
                assert successor.worker > worker.worker + 1
        await worker.abandon()


async def test_a_worker_of_a_restored_database_cannot_write_after_another_restore(tmp_path: Path) -> None:
    """The same backup is restored twice, while the worker is frozen."""
    studio = Studio()
    async with old_machine(studio, tmp_path / "old") as old:
        await old.client.start("film", {"topic": "claimed"})
        path = await back_up(old, tmp_path / "backup.tar")
    async with empty_database() as database:
        files = open_files(tmp_path / "new")
        await restore(database, files, path)
        async with new_machine(studio, database) as first, first.manual_worker() as frozen:
            outcomes = await frozen.attempt(await frozen.claim())
            async with database.connection() as connection:
                await connection.execute("update retoma.workers set heartbeat_at = heartbeat_at - interval '1 hour'")
            await restore(database, files, path, replace=True)
            async with new_machine(studio, database) as second, second.manual_worker() as successor:
                (claim,) = await successor.claim()
                assert claim.fence != outcomes[0].claim.fence
                assert successor.worker != frozen.worker
                frozen._link._link.drop()
                with pytest.raises(WorkerGone):
                    await frozen.record_outcomes(outcomes)
            await frozen.abandon()


async def test_held_webhooks_can_be_dropped_and_become_dead_letters(tmp_path: Path) -> None:
    studio = Studio()
    async with receiver() as hook:
        async with old_machine(studio, tmp_path / "old") as old:
            await add_channels(old, Channel.EMAIL)
            await add_person(old)
            async with open_work(old, studio, hook.url):
                path = await back_up(old, tmp_path / "backup.tar")
        async with empty_database() as database:
            files = open_files(tmp_path / "new")
            restored = await restore(database, files, path, "drop")
            assert (restored.database.held, restored.database.dropped) == (0, 5)
            async with new_machine(studio, database, files) as new:
                assert len(await new.client.webhooks.list_deliveries(states=[DeliveryState.DEAD])) == 4
                assert await value(new, "select count(*) from retoma.notifications where ended_at is null") == 0
                await finish_work(new)
                await new.send_webhooks()
                assert await count_webhooks(new, hook) == {
                    ("in review", "run.started"): 1,
                    **{(topic, "run.completed"): 1 for topic in TOPICS},
                }


async def test_due_webhooks_are_sent_if_the_operator_says_so(tmp_path: Path) -> None:
    studio = Studio()
    async with receiver() as hook:
        async with old_machine(studio, tmp_path / "old") as old, open_work(old, studio, hook.url):
            path = await back_up(old, tmp_path / "backup.tar")
        async with empty_database() as database:
            await restore(database, open_files(tmp_path / "new"), path, "send")
            async with new_machine(studio, database) as new:
                await new.send_webhooks()
                assert await count_webhooks(new, hook) == {(topic, "run.started"): 1 for topic in TOPICS}


async def test_a_restore_is_recorded_in_the_audit_log(tmp_path: Path) -> None:
    async with old_machine(Studio(), tmp_path / "old") as old:
        path = await back_up(old, tmp_path / "backup.tar")
    async with empty_database() as database:
        restored = await restore(database, open_files(tmp_path / "new"), path)
        async with new_machine(Studio(), database) as new:
            (entry,) = await new.client.audit.list(action="backup.restore")
            assert (entry.actor_name, entry.object_id) == ("ana", str(restored.manifest.id))
            (row,) = await rows(new, "select backup, taken_at from retoma.restores")
            assert tuple(row) == (restored.manifest.id, restored.manifest.taken_at)
