"""Which URLs may be called: a corpus of hosts, hosts that a deployment allows, and the messages of rejections."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from retoma.errors import DefinitionError, UnsafeUrl
from retoma.outgoing import LOOPBACK, Guard, addresses, mask_query_values, strip_path
from retoma.outgoing.target import parse_target
from retoma.settings import Settings
from tests.outgoing.hosts import BAD_URLS, GOOD_URLS, NOT_PUBLIC, ODD_SPELLINGS, PRIVATE_NAMES, PUBLIC


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_called(address: str) -> None:
    Guard().check(url_of(address))


@pytest.mark.parametrize("host", [*NOT_PUBLIC, *PRIVATE_NAMES])
def test_a_private_host_may_not_be_called(host: str) -> None:
    with pytest.raises(UnsafeUrl, match="RETOMA_ALLOW_HOSTS"):
        Guard().check(url_of(host))


@pytest.mark.parametrize("host", ODD_SPELLINGS)
def test_no_spelling_hides_a_private_address(host: str) -> None:
    with pytest.raises(UnsafeUrl):
        Guard().check(url_of(host))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_a_name_that_resolves_to_a_private_address_may_not_be_called(address: str) -> None:
    with pytest.raises(UnsafeUrl, match="resolves to"):
        Guard().check_addresses("hooks.example.com", 443, [ip_address("93.184.215.14"), ip_address(address)])


@pytest.mark.parametrize("url", BAD_URLS)
def test_an_ambiguous_url_is_rejected(url: str) -> None:
    with pytest.raises(UnsafeUrl):
        Guard().check(url)


@pytest.mark.parametrize("url", GOOD_URLS)
def test_a_plain_url_may_be_called(url: str) -> None:
    Guard().check(url)


def test_the_corpus_is_large_enough_and_has_no_host_twice() -> None:
    hosts = [*PUBLIC, *NOT_PUBLIC, *ODD_SPELLINGS, *PRIVATE_NAMES]
    assert len(hosts) == len(set(hosts)) > 250


def test_plain_http_is_refused_unless_the_host_is_allowed() -> None:
    with pytest.raises(UnsafeUrl, match=r"use https for 'example\.com'.*add example\.com to RETOMA_ALLOW_HOSTS"):
        Guard().check("http://example.com/")
    Guard.from_hosts(["Example.com."]).check("http://example.com/")


def test_other_ports_are_refused_unless_the_host_is_allowed() -> None:
    with pytest.raises(UnsafeUrl, match=r"port 5432 of 'example\.com' is neither 443 nor 80"):
        Guard().check("https://example.com:5432/")
    Guard.from_hosts(["example.com"]).check("https://example.com:5432/")


def test_an_allowed_network_allows_nothing_else() -> None:
    guard = Guard.from_hosts(["10.1.0.0/16", "fd00::/8"])
    for allowed in ("http://10.1.2.3:5678/", "http://[fd00::1]/", "http://[::ffff:10.1.2.3]/"):
        guard.check(allowed)
    for refused in ("https://10.2.0.1/", "https://127.0.0.1/", "https://[fe80::1]/", "http://example.com/"):
        with pytest.raises(UnsafeUrl):
            guard.check(refused)


def test_a_name_that_resolves_into_an_allowed_network_may_be_called() -> None:
    Guard.from_hosts(["10.1.0.0/16"]).check_addresses("n8n.example.com", 443, [ip_address("10.1.2.3")])


@pytest.mark.parametrize(
    "other",
    [
        *("http://other.internal:8000/v2", "https://gpu.internal:8000/v2", "http://gpu.internal/v2"),
        *("http://gpu.internal:8001/v2", "https://gpu.internal/v2"),
    ],
)
def test_allowing_a_base_url_allows_its_origin_alone(other: str) -> None:
    guard = Guard().with_origin_of("http://gpu.internal:8000/v2")
    guard.check("http://gpu.internal:8000/v2/run")
    with pytest.raises(UnsafeUrl):
        guard.check(other)


def test_a_private_address_is_allowed_only_at_the_port_of_the_base_url() -> None:
    guard = Guard().with_origin_of("https://gpu.example.com/v2")
    guard.check_addresses("gpu.example.com", 443, [ip_address("10.0.0.1")])
    with pytest.raises(UnsafeUrl, match="resolves to"):
        guard.check_addresses("gpu.example.com", 80, [ip_address("10.0.0.1")])


def test_a_rejection_names_the_field_of_the_url() -> None:
    with pytest.raises(UnsafeUrl, match=r"^images\.3\.image_url: '10\.0\.0\.8' is not a public address") as refused:
        Guard().check("https://10.0.0.8/a.jpg", "images.3.image_url")
    assert refused.value.field == "images.3.image_url"


def test_a_placeholder_url_is_reported_as_one() -> None:
    with pytest.raises(UnsafeUrl, match=r"'https://\.\.\.' is a placeholder: use the whole URL"):
        Guard().check("https://...")


def test_allowed_hosts_come_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOMA_ALLOW_HOSTS", "n8n.internal, 127.0.0.1")
    guard = Guard.from_settings(Settings())
    for url in ("http://n8n.internal:5678/webhook/x", "http://127.0.0.1:9000/"):
        guard.check(url)
    with pytest.raises(UnsafeUrl):
        guard.check("http://127.0.0.2/")


@pytest.mark.parametrize(
    "values", ["*", "*.example.com", "https://example.com", "example.com:8080", "10.0.0.0/33", "a b"]
)
def test_a_setting_that_allows_nothing_is_reported(values: str) -> None:
    with pytest.raises(DefinitionError, match=r"RETOMA_ALLOW_HOSTS contains .* without a scheme, a port or a wildcard"):
        Guard.from_settings(Settings(allow_hosts=("n8n.internal", values)))


def test_nothing_private_is_allowed_by_default() -> None:
    assert Guard.from_settings(Settings(allow_hosts=())) == Guard()


def test_this_machine_can_be_allowed_as_a_whole() -> None:
    guard = Guard.from_hosts(LOOPBACK)
    for host in ("127.0.0.1", "127.0.0.53", "[::1]", "localhost"):
        guard.check(f"http://{host}:8080/")


def test_an_address_of_this_machine_is_never_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_can_bind", lambda address: str(address) == "93.184.215.14")
    addresses._can_detect_local.cache_clear()
    with pytest.raises(UnsafeUrl, match="not a public address"):
        Guard().check("https://93.184.215.14/")
    Guard().check("https://93.184.215.15/")
    addresses._can_detect_local.cache_clear()


def test_loopback_is_known_as_an_address_of_this_machine() -> None:
    assert addresses.is_local(ip_address("127.0.0.1"))
    assert not addresses.is_local(ip_address("8.8.8.8"))


def test_the_checked_address_is_the_one_that_is_used() -> None:
    target = parse_target("https://EXAMPLE.com.:8443/a/../b?c=d#e")
    assert (target.scheme, target.host, target.port) == ("https", "example.com", 8443)
    assert b"#" not in target.path


def test_a_rejection_does_not_reveal_the_path_which_may_be_secret() -> None:
    with pytest.raises(UnsafeUrl) as refused:
        Guard().check("http://10.0.0.1/token-4711?key=4712")
    assert "471" not in str(refused.value)
    assert strip_path("https://example.com/token-4711?key=4712") == "https://example.com"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/hook", "https://example.com/hook"),
        ("https://example.com/hook?", "https://example.com/hook?"),
        ("https://example.com/hook?a=4711&b=&4712#4713", "https://example.com/hook?a=***&b=***&***"),
        ("https://example.com/hook?a=4711=4712?x=4713", "https://example.com/hook?a=***"),
        ("https://user:4711@example.com/hook", "https://***@example.com/hook"),
        ("https://4711@example.com?a=4712@x", "https://***@example.com?a=***"),
    ],
)
def test_query_values_are_never_shown(url: str, shown: str) -> None:
    assert mask_query_values(url) == shown


def url_of(host: str) -> str:
    return f"https://[{host}]/" if ":" in host else f"https://{host}/"
