"""What messages say: in the person's language, escaped, on one line, and with links to this server only."""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes
from email.errors import MessageError
from email.headerregistry import Address
from email.policy import default
from html.parser import HTMLParser
from uuid import UUID

import pytest

from retoma.notifications.chat_channels import format_slack, format_telegram
from retoma.notifications.content import Content, Reader, build_content
from retoma.notifications.email_channel import build_mail, format_html, format_text
from retoma.records import Channel, Notification, NotificationKind
from retoma.store.notifications import ClaimedMessage

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SOME_ID = UUID(int=7)
HOSTILE = (
    "<script>alert(1)</script>",
    "title\r\nBcc: victim@example.com\r\n\r\nbody",
    "a\u2028b\u2029c\x0bd\x85e",
    "\u202egnp.exe",
    "=?utf-8?q?Subject=3A_injected?=",
    '"><img src=x onerror=alert(1)>',
    "<https://evil.example|click here>",
    "x" * 5000,
    "\udcff",
)


def make_event(kind: NotificationKind = NotificationKind.REVIEW_OPENED, **values: object) -> Notification:
    facts: dict[str, object] = {
        "id": 1,
        "kind": kind,
        "tenant": "blog",
        "run": None if kind in (NotificationKind.BUDGET, NotificationKind.TEST) else SOME_ID,
        "run_title": "Bonds",
        "pipeline": "article",
        "review": SOME_ID if kind.startswith("review") else None,
        "step": "script" if kind.startswith("review") else None,
        "item": "",
        "due_at": NOW,
        "delivery": SOME_ID if kind is NotificationKind.DELIVERY_DEAD else None,
        "data": None,
        "created_at": NOW,
    }
    return Notification(**{**facts, **values})  # type: ignore[arg-type]


def write(*events: Notification, language: str | None = None, zone: str | None = None) -> Content:
    return build_content(None, events, Reader(language, zone), "https://retoma.example.com/")


def make_message(name: str = "Ana", address: str = "ana@example.com") -> ClaimedMessage:
    return ClaimedMessage(SOME_ID, 1, 1, 1, Channel.EMAIL, NOW, NOW, name, None, None, address)


@pytest.mark.parametrize("title", HOSTILE)
def test_a_title_cannot_add_a_header(title: str) -> None:
    content = write(make_event(run_title=title, item=title, tenant=title))
    sent = build_mail(make_message(name=title), content, Address("Retoma", addr_spec="retoma@example.com")).as_bytes()
    mail = message_from_bytes(sent, policy=default)
    expected = {"from", "to", "subject", "date", "message-id", "auto-submitted", "mime-version", "content-type"}
    assert {name.lower() for name in mail} == expected
    assert [each.addr_spec for each in mail["To"].addresses] == ["ana@example.com"]


@pytest.mark.parametrize("address", ["ana@example.com\r\nBcc: x@example.com", "not an address", "", "a@b@c"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises((ValueError, IndexError, MessageError)):
        build_mail(make_message(address=address), write(make_event()), Address("R", addr_spec="retoma@example.com"))


@pytest.mark.parametrize("title", HOSTILE)
def test_a_title_is_text_in_html(title: str) -> None:
    tags: set[str] = set()
    links: set[str | None] = set()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            links.update(value for name, value in attrs if name == "href")

    Parser().feed(format_html(write(make_event(run_title=title, item=title, tenant=title))))
    assert tags == {"html", "head", "meta", "title", "body", "ul", "li", "div", "a", "p"}
    assert all(str(link).startswith("https://retoma.example.com/") for link in links)


@pytest.mark.parametrize("title", HOSTILE)
def test_a_title_is_text_in_chats(title: str) -> None:
    content = write(make_event(run_title=title, item=title, tenant=title))
    assert format_slack(content).count("<") == 1
    assert format_telegram(content).count("<") == 4
    assert len(format_telegram(content)) < 1000


@pytest.mark.parametrize("title", HOSTILE)
def test_a_title_stays_on_its_line(title: str) -> None:
    plain = format_text(write(make_event(run_title=title)))
    assert len(plain.splitlines()) == 6
    assert "\u202e" not in plain


PATHS = {
    NotificationKind.REVIEW_OPENED: f"/reviews/{SOME_ID}",
    NotificationKind.REVIEW_DUE: f"/reviews/{SOME_ID}",
    NotificationKind.REVIEW_ESCALATED: f"/reviews/{SOME_ID}",
    NotificationKind.REVIEW_ASSIGNED: f"/reviews/{SOME_ID}",
    NotificationKind.RUN_FAILED: f"/runs/{SOME_ID}",
    NotificationKind.RUN_STUCK: f"/runs/{SOME_ID}",
    NotificationKind.DELIVERY_DEAD: f"/deliveries/{SOME_ID}",
    NotificationKind.BUDGET: "/budgets",
    NotificationKind.TEST: "/account/notifications",
}


@pytest.mark.parametrize("kind", NotificationKind)
def test_a_link_opens_the_exact_thing(kind: NotificationKind) -> None:
    path = PATHS[kind]
    assert write(make_event(kind)).lines[0].url == f"https://retoma.example.com{path}"


def test_without_a_public_url_there_are_no_links() -> None:
    content = build_content(None, [make_event()], Reader(None, None), None)
    assert "http" not in format_text(content) + format_html(content) + format_slack(content) + format_telegram(content)


def test_a_message_is_in_the_persons_language_and_time_zone() -> None:
    event = make_event(NotificationKind.REVIEW_DUE)
    assert write(event).lines[0].details[-1] == "due 2030-01-01 12:00 (UTC)"
    translated = write(event, language="pt", zone="America/Sao_Paulo")
    assert translated.lines[0].details[-1] == "vence em 01/01/2030 09:00 (America/Sao_Paulo)"
    assert translated.subject == "Prazo da revisão: script · Bonds"


def test_a_budget_says_how_much_is_used() -> None:
    data = {"name": "models", "used": 8_000_000, "limit": 10_000_000}
    event = make_event(NotificationKind.BUDGET, run=None, run_title=None, data=data)
    assert write(event).lines[0].details == ("models", "US$ 8.00 of US$ 10.00 used", "blog")
    assert write(event, language="pt").lines[0].details == ("models", "US$ 8,00 de US$ 10,00 usados", "blog")


def test_many_events_are_counted_in_the_subject() -> None:
    assert write(make_event(), make_event()).subject == "2 notifications"
