"""E-mail: one message in text and HTML, with a Message-ID that stays the same in all attempts."""

from __future__ import annotations

import socket
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from urllib.parse import urlsplit

import aiosmtplib
from markupsafe import Markup

from retoma.errors import DefinitionError
from retoma.notifications.attempt import DELIVERED, Attempt, give_up, retry
from retoma.notifications.content import Content, Line, clean_text
from retoma.settings import Settings
from retoma.store.notifications import ClaimedMessage

TIMEOUT = 20.0  # less than the lease of a message
_ITEM = Markup(
    '<li style="margin:0 0 16px"><div style="font-weight:600">{headline}</div><div>{details}</div>{link}</li>'
)
_LINK = Markup('<div><a href="{url}">{url}</a></div>')
_PAGE = Markup(
    '<!doctype html><html lang="{locale}"><head><meta charset="utf-8"><title>{subject}</title></head>'
    '<body style="font:15px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#ffffff;margin:24px">'
    '<ul style="list-style:none;margin:0;padding:0">{items}</ul>'
    '<p style="color:#595959;font-size:13px">Retoma{footer}</p></body></html>'
)
_FOOTER = Markup(' · <a href="{url}">{text}</a>')


class EmailChannel:
    """Sends through the SMTP server of these settings, with one connection for each message."""

    def __init__(self, settings: Settings) -> None:
        self._host, self._port, self._security = settings.smtp_host, settings.smtp_port, settings.smtp_security
        self._username, self._password = settings.smtp_username, settings.read_smtp_password()
        self._sender = _parse_sender(settings.smtp_from)
        if self._security == "none" and self._password is not None:
            raise DefinitionError(
                "RETOMA_SMTP_SECURITY, or the security of the connection smtp, is none, which would send the password "
                "unencrypted: use starttls or tls"
            )

    async def send(self, message: ClaimedMessage, content: Content) -> Attempt:
        """Send the message. A rejected recipient or content is final; everything else is retried."""
        try:
            mail = build_mail(message, content, self._sender)
        except (MessageError, ValueError, IndexError) as wrong:
            return give_up(f"this is not an e-mail address that mail can be sent to: {wrong}")
        try:
            await aiosmtplib.send(
                mail,
                sender=self._sender.addr_spec,
                recipients=[message.address or ""],
                hostname=self._host,
                port=self._port,
                use_tls=self._security == "tls",
                start_tls=self._security == "starttls",
                username=self._username,
                password=self._password,
                local_hostname=socket.gethostname(),
                timeout=TIMEOUT,
            )
        except aiosmtplib.SMTPRecipientsRefused as refused:
            return _judge(message, max(each.code for each in refused.recipients), str(refused.recipients[0].message))
        except aiosmtplib.SMTPAuthenticationError as error:
            # Not the person's fault: the settings are wrong, and may be right again soon.
            return retry(message, f"the SMTP server refused the login: {error.code} {error.message}")
        except aiosmtplib.SMTPResponseException as error:
            return _judge(message, error.code, error.message)
        except (aiosmtplib.SMTPException, OSError) as error:
            return retry(message, f"the SMTP server cannot be used: {error or type(error).__name__}")
        return DELIVERED


def build_mail(message: ClaimedMessage, content: Content, sender: Address) -> EmailMessage:
    """Return the mail. Raise ValueError if the address is not one; texts cannot add headers."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = Address(clean_text(message.name), addr_spec=message.address or "")
    mail["Subject"] = clean_text(content.subject, 200)
    mail["Date"] = format_datetime(message.created_at)
    mail["Message-ID"] = f"<{message.id}@{sender.domain}>"
    mail["Auto-Submitted"] = "auto-generated"  # nobody's absence notice should answer
    mail.set_content(format_text(content))
    mail.add_alternative(format_html(content), subtype="html")
    return mail


def format_text(content: Content) -> str:
    items = ["\n".join(filter(None, (each.headline, " · ".join(each.details), each.url))) for each in content.lines]
    footer = f"{content.footer}: {content.footer_url}" if content.footer_url else content.footer
    return "\n\n".join([*items, f"-- \nRetoma · {footer}"]) + "\n"


def format_html(content: Content) -> str:
    """Return a page in which every text is escaped, and every link leads to this server."""
    footer = _FOOTER.format(url=content.footer_url, text=content.footer) if content.footer_url else ""
    items = Markup("").join(map(_format_item, content.lines))
    return str(_PAGE.format(locale=content.locale, subject=content.subject, items=items, footer=footer))


def _format_item(line: Line) -> Markup:
    link = _LINK.format(url=line.url) if line.url else ""
    return _ITEM.format(headline=line.headline, details=" · ".join(line.details), link=link)


def _judge(message: ClaimedMessage, code: int, answer: str) -> Attempt:
    """5xx is final, everything else is temporary (RFC 5321, 4.2.1)."""
    error = f"the SMTP server answered {code} {answer}"
    return give_up(error) if 500 <= code < 600 else retry(message, error)


def _parse_sender(value: str | None) -> Address:
    name, address = parseaddr(value or "")
    try:
        sender = Address(name, addr_spec=address)
    except (MessageError, ValueError, IndexError):
        sender = Address()
    if not sender.domain or urlsplit(f"//{sender.domain}").hostname is None:
        raise DefinitionError(
            "RETOMA_SMTP_FROM, or the sender of the connection smtp, must be an address, such as "
            "`Retoma <retoma@example.com>`"
        )
    return sender
