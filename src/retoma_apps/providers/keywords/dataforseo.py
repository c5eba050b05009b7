"""DataForSEO: a thin client for the keywords that Google Ads suggests around a phrase.

It is a JSON API with prepaid calls that anybody can order, and it reports the cost of each call. Google's own keyword
planner needs an approved developer token and an active advertising account; autocomplete endpoints are not APIs.

The service answers 200 and names errors in the body, except for rejected accounts. An account may make 12 live calls
per minute to this endpoint: limit the rate of the pool accordingly.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from retoma.connections import ConnectionField, ConnectionType
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import NoResponse, Response
from retoma_apps.providers.http_service import HttpService, ServiceSettings
from retoma_apps.providers.keywords.errors import KeywordsError, KeywordsRefused
from retoma_apps.providers.keywords.port import Suggestion, Suggestions
from retoma_apps.providers.responses import format_provider_message, parse_json_object

DEFAULT_RETRY_DELAY = timedelta(seconds=60)
PATH = "/v3/keywords_data/google_ads/keywords_for_keywords/live"
_OK = 20_000
_LONGEST_KEYWORD, _MOST_WORDS = 80, 10  # limits of the service
_REJECTED = "DataForSEO rejected our credentials: check DATAFORSEO_LOGIN, DATAFORSEO_PASSWORD and the balance"
_REJECTED_CODES = (40_100, 40_200, 40_201, 40_204, 40_210)
_RATE_LIMITED_CODES = (40_202, 40_203, 40_209)
# The language of Google Ads, and the country whose searches count if no other is configured.
_LANGUAGES = {"pt-BR": ("pt", 2076), "en": ("en", 2840), "es": ("es", 2724)}


class DataForSeoSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="DATAFORSEO_")

    base_url: str = "https://api.dataforseo.com"
    login: str = ""
    password: SecretStr = SecretStr("")
    location_code: int | None = Field(None, ge=1, description="The country whose searches count; unset: by language.")
    timeout_seconds: float = Field(60.0, gt=0, description="Timeout for one answer.")


class DataForSeo(HttpService[DataForSeoSettings]):
    name = "dataforseo"
    model = "google_ads/keywords_for_keywords"
    label = "DataForSEO"
    no_key = "DataForSEO needs credentials: set DATAFORSEO_LOGIN and DATAFORSEO_PASSWORD"
    variables: tuple[str, ...] = ("DATAFORSEO_LOGIN", "DATAFORSEO_PASSWORD")
    settings_type = DataForSeoSettings
    account_errors: Mapping[int, str] = dict.fromkeys((401, 402, 403), _REJECTED)

    @property
    def _key(self) -> str:
        login, password = self._settings.login, self._settings.password.get_secret_value()
        return b64encode(f"{login}:{password}".encode()).decode() if login and password else ""

    async def check_account(self) -> str:
        await self._check_access("/v3/appendix/user_data", {"Authorization": f"Basic {self._key}"})
        return "DataForSEO accepts the credentials"

    async def suggest(self, seed: str, *, language: str, limit: int) -> Suggestions:
        code, country = _LANGUAGES[language]
        phrase = " ".join(seed.split()[:_MOST_WORDS])[:_LONGEST_KEYWORD]
        task = {
            "keywords": [phrase],
            "language_code": code,
            "location_code": self._settings.location_code or country,
            "sort_by": "search_volume",
        }
        answer = await self._request("POST", PATH, {"Authorization": f"Basic {self._key}"}, json=[task])
        found = self._get_task(answer)
        rows = found.get("result") or []
        suggestions = [each for row in rows if isinstance(row, dict) and (each := _to_suggestion(row))]
        return Suggestions(tuple(suggestions[:limit]), _to_micros(found.get("cost")))

    def _timeout_error(self, error: NoResponse) -> Exception:
        return KeywordsError(f"DataForSEO timed out: {error}", "KEYWORDS_TIMEOUT")

    def _get_task(self, answer: Response) -> dict[str, Any]:
        """Return the only task of a successful answer. Raise the error that each other answer requires."""
        body = parse_json_object(answer)
        if not answer.is_success:
            self._raise_account_error(answer, answer.status, self._quote(body), DEFAULT_RETRY_DELAY)
            raise ProviderDown(f"DataForSEO answered {answer.status}{self._quote(body)}")
        if body is None:
            raise KeywordsError("DataForSEO's answer is not a JSON object", "KEYWORDS_INVALID_ANSWER")
        tasks = body.get("tasks")
        task = tasks[0] if isinstance(tasks, list) and tasks else None
        for part in (body, task):
            if not isinstance(part, dict):
                raise KeywordsError("DataForSEO's answer contains no task", "KEYWORDS_INVALID_ANSWER")
            if part.get("status_code") != _OK:
                self._raise_error(part)
        assert isinstance(task, dict)
        return task

    def _raise_error(self, part: dict[str, Any]) -> NoReturn:
        code, why = part.get("status_code"), self._quote(part)
        if code in _REJECTED_CODES:
            raise ProviderRejected(f"{_REJECTED}{why}")
        if code in _RATE_LIMITED_CODES:
            raise RateLimited(DEFAULT_RETRY_DELAY, f"DataForSEO is rate limiting us{why}")
        if isinstance(code, int) and 40_000 <= code < 50_000:
            raise KeywordsRefused(f"DataForSEO rejected the request with {code}{why}")
        raise KeywordsError(f"DataForSEO failed with {code}{why}")

    def _quote(self, part: dict[str, Any] | None) -> str:
        return format_provider_message((part or {}).get("status_message"), self._key)


def _to_suggestion(row: dict[str, Any]) -> Suggestion | None:
    text, volume = row.get("keyword"), row.get("search_volume")
    if not isinstance(text, str) or not text.strip():
        return None
    return Suggestion(" ".join(text.split())[:_LONGEST_KEYWORD], volume if isinstance(volume, int) else None)


def _to_micros(cost: object) -> int | None:
    """Return the cost in millionths of a US dollar, None if the answer has none that can be right."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 10**6:
        return None
    return int(Decimal(str(cost)) * 10**6)


CONNECTION = ConnectionType(
    DataForSeo.name,
    "DataForSEO",
    (ConnectionField("login", "Login"), ConnectionField("password", "Password", "secret")),
    DataForSeo.try_connection,
    variables=DataForSeo.variables,
)
