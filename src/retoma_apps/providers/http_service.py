"""What clients of HTTP services share: settings with a key, requests, and the errors that concern the whole account."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import Settings
from retoma.connections import TenantConnections
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import Guard, HttpClient, NoResponse, Response
from retoma_apps.providers.responses import format_provider_message, parse_json_object
from retoma_apps.providers.retry_after import parse_retry_after


class ServiceSettings(BaseSettings):
    """A service's own class sets the prefix of its variables and the defaults."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore")

    api_key: SecretStr = SecretStr("")
    base_url: str = ""
    timeout_seconds: float = Field(120.0, gt=0, description="Timeout for one answer.")


SettingsType = TypeVar("SettingsType", bound=ServiceSettings)


class HttpService(Generic[SettingsType]):
    """Create it where it is used: its connections belong to one event loop.

    `name` is the service of its connections, and `label` is how messages name it. `no_key` says how to set the key, and
    `account_errors` has the message, with the fix, for each status that rejects our account.
    """

    name: str
    label: str
    no_key: str
    settings_type: type[SettingsType]
    account_errors: Mapping[int, str] = {}
    largest_answer = 4 * 1024**2
    is_offline = False

    def __init__(self, settings: SettingsType | None = None, outgoing: HttpClient | None = None) -> None:
        self._settings = settings or self.settings_type()
        allowed = self._settings.base_url
        self._outgoing = outgoing or HttpClient(Guard().with_origin_of(allowed) if allowed else Guard())
        # Links in answers are not trusted as the service itself is.
        self._links = outgoing or HttpClient(Guard.from_settings(Settings()))

    @classmethod
    def from_environment(cls) -> Self | None:
        service = cls()
        return service if service._key else None

    @classmethod
    def from_connection(cls, values: Mapping[str, str]) -> Self:
        """Return the service with the values of a connection; settings that it lacks are those of the environment.

        The person who enters the address of a connection administers a tenant, not this machine: it must be public, or
        one of RETOMA_ALLOW_HOSTS.
        """
        fields = cls.settings_type.model_fields.items()
        # No secret of the environment belongs to this account, or may be sent to its address.
        blank = {name: "" for name, field in fields if field.annotation is SecretStr}
        settings = cls.settings_type(**dict[str, Any]({**blank, **values}))
        return cls(settings, HttpClient(Guard.from_settings(Settings())) if "base_url" in values else None)

    @classmethod
    def for_tenant(cls, connections: TenantConnections) -> Self | None:
        values = connections.find(cls.name)
        return cls.from_environment() if values is None else cls.from_connection(values)

    @classmethod
    async def try_connection(cls, values: Mapping[str, str]) -> str:
        """Try the values of a connection, or without any the environment. Return what was reached, or raise."""
        service = cls.from_connection(values) if values else cls()
        try:
            return await service.check_account()
        finally:
            await service.close()

    async def check_account(self) -> str:
        """Call the service without a cost. Return what it says about the account; raise if it rejects it."""
        raise NotImplementedError

    async def _check_access(self, path: str, headers: Mapping[str, str]) -> Response:
        """Return a successful answer to a request that costs nothing. Raise the error that each other answer means."""
        answer = await self._request("GET", path, headers)
        if not answer.is_success:
            why = format_provider_message(_read_message(answer), self._key)
            self._raise_account_error(answer, answer.status, why, timedelta(seconds=10))
            raise ProviderDown(f"{self.label} answered {answer.status}{why}")
        return answer

    async def close(self) -> None:
        await self._outgoing.close()
        await self._links.close()

    @property
    def _key(self) -> str:
        return self._settings.api_key.get_secret_value()

    @property
    def _origin(self) -> str:
        return self._settings.base_url.rstrip("/")

    async def _request(
        self, method: str, path: str, headers: Mapping[str, str], *, content: bytes | None = None, json: Any = None
    ) -> Response:
        """Return the answer with any status. Raise ProviderRejected without a key, or the error of a lost answer."""
        if not self._key:
            raise ProviderRejected(self.no_key)
        try:
            return await self._outgoing.request(
                method,
                f"{self._origin}{path}",
                headers=headers,
                content=content,
                json=json,
                timeout=self._settings.timeout_seconds,
                limit=self.largest_answer,
            )
        except NoResponse as error:
            timed_out = isinstance(error.__cause__, TimeoutError)
            raise (self._timeout_error(error) if timed_out else self._no_answer(error)) from error

    def _timeout_error(self, error: NoResponse) -> Exception:
        """Return the error for a call that took too long; by default the service counts as down."""
        return self._no_answer(error)

    def _no_answer(self, error: NoResponse) -> Exception:
        return ProviderDown(f"{self.label} did not answer: {error}")

    def _raise_account_error(self, answer: Response, status: int, why: str, delay: timedelta) -> None:
        """Raise if this status rejects or limits our account. A limit lasts for `delay` if the service does not say."""
        pause = parse_retry_after(answer)
        if status in self.account_errors:
            raise ProviderRejected(f"{self.account_errors[status]}{why}")
        if status == 429 or (status == 503 and pause is not None):
            raise RateLimited(pause or delay, f"{self.label} is rate limiting us{why}")


def _read_message(answer: Response) -> Any:
    error = (parse_json_object(answer) or {}).get("error")
    return error.get("message") if isinstance(error, dict) else error
