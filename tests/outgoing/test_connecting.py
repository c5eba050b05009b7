"""A name is resolved once, all its addresses are checked, and the connection uses one of exactly these addresses."""

from __future__ import annotations

import pytest

from retoma.errors import NoResponse, UnsafeUrl
from retoma.outgoing import Guard, HttpClient
from retoma.outgoing.connector import GuardedConnector
from tests.receiver import receiver, respond_with


class Names:
    """A resolver that returns one answer after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0)


async def test_a_request_connects_to_the_address_and_names_the_host() -> None:
    names = Names(["127.0.0.1"])
    async with (
        receiver(respond_with(200, b"ok")) as listener,
        HttpClient(Guard.from_hosts(["hooks.test"]), resolve=names) as outgoing,
    ):
        answer = await outgoing.request("GET", f"http://hooks.test:{listener.port}/a?b=c")
    assert (answer.status, answer.body) == (200, b"ok")
    assert (listener.requests[0].path, listener.requests[0].headers["host"]) == (
        "/a?b=c",
        f"hooks.test:{listener.port}",
    )
    assert names.asked == ["hooks.test"]


async def test_a_name_that_becomes_private_between_check_and_use_is_not_contacted() -> None:
    names = Names(["93.184.215.14"], ["127.0.0.1"], ["127.0.0.1"])
    async with receiver() as listener, HttpClient(resolve=names) as outgoing:
        assert await names("hooks.test", 443) == ["93.184.215.14"]  # what a check would have seen
        with pytest.raises(UnsafeUrl, match=r"'hooks\.test' resolves to 127\.0\.0\.1, which is not a public address"):
            await outgoing.request("POST", "https://hooks.test/", content=b"secret")
        assert listener.connections == 0
    assert len(names.asked) == 2


@pytest.mark.parametrize(
    "found",
    [
        ["93.184.215.14", "127.0.0.1"],
        ["127.0.0.1", "93.184.215.14"],
        ["93.184.215.14", "::1"],
        ["2606:4700:4700::1111", "10.0.0.1"],
        ["2606:4700:4700::1111", "::ffff:169.254.169.254"],
        ["93.184.215.14", "fe80::1"],
    ],
)
async def test_one_private_address_among_public_ones_is_enough_to_refuse(found: list[str]) -> None:
    async with HttpClient(resolve=Names(found)) as outgoing:
        with pytest.raises(UnsafeUrl, match="not a public address"):
            await outgoing.request("GET", "https://hooks.test/")


async def test_each_connection_is_checked_again() -> None:
    connector = GuardedConnector(Guard.from_hosts(["127.0.0.0/8"]), Names(["127.0.0.1"], ["10.0.0.1"]))
    async with receiver() as listener:
        first = await connector.connect_tcp("hooks.test", listener.port, 5)
        await first.aclose()
        with pytest.raises(UnsafeUrl, match=r"resolves to 10\.0\.0\.1"):
            await connector.connect_tcp("hooks.test", listener.port, 5)


async def test_an_allowed_network_can_be_reached_by_name() -> None:
    async with HttpClient(Guard.from_hosts(["127.0.0.0/8"]), resolve=Names(["127.0.0.1"])) as outgoing:
        with pytest.raises(NoResponse):  # nobody speaks TLS there, but it was tried
            await outgoing.request("GET", "https://hooks.test/")


async def test_the_next_address_is_tried_if_the_first_refuses() -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    async with receiver() as listener, HttpClient(Guard.from_hosts(["hooks.test"]), resolve=names) as outgoing:
        assert (await outgoing.request("GET", f"http://hooks.test:{listener.port}/")).status == 200


@pytest.mark.parametrize("found", [[], None])
async def test_a_name_without_an_address_is_certainly_not_sent(found: list[str] | None) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if found is None:
            raise OSError("Name or service not known")
        return found

    async with HttpClient(resolve=resolve) as outgoing:
        with pytest.raises(NoResponse, match=r"https://hooks\.test cannot be reached") as failed:
            await outgoing.request("GET", "https://hooks.test/secret")
    assert failed.value.maybe_sent is False
    assert "secret" not in str(failed.value)


async def test_the_system_resolves_the_name_of_this_machine() -> None:
    async with receiver() as listener, HttpClient(Guard.from_hosts(["localhost"])) as outgoing:
        assert (await outgoing.request("GET", f"http://localhost:{listener.port}/")).status == 200
