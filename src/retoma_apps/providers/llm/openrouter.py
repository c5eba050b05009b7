"""OpenRouter: a thin client of its chat completions.

A model that has begun to answer may still fail: then the status is 200, and the error stands in the body or in its
choice. Both are met as if they had come with the status that they name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn

from pydantic import BaseModel, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import Guard, HttpClient, NoResponse, Response
from retoma_apps.providers.llm.errors import (
    ContentFiltered,
    CutShort,
    InvalidAnswer,
    InvalidJson,
    LlmRefused,
    LlmUnavailable,
)
from retoma_apps.providers.llm.port import Message, Reply, Usage
from retoma_apps.providers.llm.schemas import strict_schema
from retoma_apps.providers.responses import format_provider_message, parse_json_object
from retoma_apps.providers.retry_after import parse_retry_after

DEFAULT_RETRY_DELAY = timedelta(seconds=10)
REASONING_TOKENS = 3_500  # tokens before an answer, which the provider counts as part of it
_LARGEST_ANSWER = 4 * 1024**2
_MOST_TOKENS = 10**9
_MOST_COST = 10**12
_TOO_LONG = (
    "context_length_exceeded",
    "max_tokens_exceeded",
    "token_limit_exceeded",
    "string_too_long",
    "payload_too_large",
)
_FILTERED = ("content_policy_violation", "refusal")
_TEMPORARY_ERRORS = ("provider_overloaded", "provider_unavailable", "server", "unmapped")
_ACCOUNT_ERRORS = {
    401: "OpenRouter refuses our key: set OPENROUTER_API_KEY to one that is valid",
    402: "OpenRouter's account has no credit left: add some",
    403: "OpenRouter's key may not use this model: allow it there, or take another model",
}
_STATUS_OF = {
    "authentication": 401,
    "payment_required": 402,
    "permission_denied": 403,
    "not_found": 404,
    "rate_limit_exceeded": 429,
    "timeout": 504,
    **dict.fromkeys(_TEMPORARY_ERRORS, 503),
}


class OpenRouterSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENROUTER_", env_file=".env", extra="ignore")

    api_key: SecretStr = SecretStr("")
    base_url: str = "https://openrouter.ai/api/v1"
    timeout_seconds: float = Field(90.0, gt=0, description="How long one answer may take.")
    title: str = Field("Retoma", description="The name under which OpenRouter lists these calls.")


class OpenRouter:
    """Make it where it is used: its connections belong to one event loop."""

    def __init__(self, settings: OpenRouterSettings | None = None, outgoing: HttpClient | None = None) -> None:
        self._settings = settings or OpenRouterSettings()
        self._outgoing = outgoing or HttpClient(Guard().with_origin_of(self._settings.base_url))

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        model: str,
        schema: type[BaseModel] | None = None,
        max_tokens: int,
    ) -> Reply:
        if not self._key:
            raise ProviderRejected("no key for OpenRouter is set: set OPENROUTER_API_KEY")
        body = _request_body(messages, model, schema, max_tokens)
        answer = await self._post(body)
        told = self._parse_body(answer)
        choice = self._first_choice(answer, told)
        reply = _reply(told, choice, self._get_text(told, choice))
        return reply if schema is None else _decode_json(reply)

    async def close(self) -> None:
        await self._outgoing.close()

    @property
    def _key(self) -> str:
        return self._settings.api_key.get_secret_value()

    async def _post(self, body: dict[str, Any]) -> Response:
        try:
            return await self._outgoing.request(
                "POST",
                f"{self._settings.base_url.rstrip('/')}/chat/completions",
                headers={"Authorization": f"Bearer {self._key}", "X-OpenRouter-Title": self._settings.title},
                json=body,
                timeout=self._settings.timeout_seconds,
                limit=_LARGEST_ANSWER,
            )
        except NoResponse as error:
            if isinstance(error.__cause__, TimeoutError):
                raise LlmUnavailable(f"OpenRouter did not answer: {error}", "LLM_TIMEOUT") from error
            raise ProviderDown(f"OpenRouter did not answer: {error}") from error

    def _parse_body(self, answer: Response) -> dict[str, Any]:
        """The body of a success. Raises for everything else, each kind as who calls must act on it."""
        told = parse_json_object(answer)
        if not answer.is_success:
            self._raise_error(answer, answer.status, _error_object(told) or {}, Usage())
        if told is None:
            kind = answer.headers.get("content-type", "no type")[:60]
            raise InvalidAnswer(
                f"OpenRouter answered {answer.status} with {kind!r}, which is no JSON object, or too long"
            )
        if error := _error_object(told):
            self._raise_error(answer, _error_status(error), error, _usage(told))
        return told

    def _first_choice(self, answer: Response, body: dict[str, Any]) -> dict[str, Any]:
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            raise InvalidAnswer("OpenRouter's answer has no choice in it", usage=_usage(body))
        if choice.get("finish_reason") == "error" or _error_object(choice):
            error = _error_object(choice) or {}
            self._raise_error(answer, _error_status(error), error, _usage(body))
        return choice

    def _get_text(self, body: dict[str, Any], choice: dict[str, Any]) -> str:
        message = choice.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if choice.get("finish_reason") == "content_filter" or (isinstance(message, dict) and message.get("refusal")):
            raise ContentFiltered("the model declines to answer on this text", usage=_usage(body))
        if not isinstance(content, str):
            raise InvalidAnswer("OpenRouter's answer has no text in it", usage=_usage(body))
        return content

    def _raise_error(self, answer: Response, status: int, error: Mapping[str, Any], usage: Usage) -> NoReturn:
        """By the provider's own word for the error if it has one, else by the status."""
        kind = _error_type(error)
        status = _STATUS_OF.get(kind, status)
        why = format_provider_message(error.get("message"), self._key)
        if kind in _FILTERED or (status == 403 and _is_moderation(error)):
            raise ContentFiltered("the provider declines this text: its rules forbid what stands in it", usage=usage)
        if kind in _TOO_LONG or status == 413:
            raise LlmRefused(
                f"the text is too long for this model: cut it, or take another model{why}",
                "LLM_TOO_LONG",
                usage=usage,
            )
        if status in _ACCOUNT_ERRORS:
            raise ProviderRejected(f"{_ACCOUNT_ERRORS[status]}{why}")
        pause = parse_retry_after(answer)
        if status == 429 or (status == 503 and pause is not None):
            raise RateLimited(pause or DEFAULT_RETRY_DELAY, f"OpenRouter says that these are too many requests{why}")
        if status in (408, 504):
            raise LlmUnavailable(f"OpenRouter gave up waiting for the model{why}", "LLM_TIMEOUT", usage=usage)
        if status >= 500 and answer.is_success:
            raise LlmUnavailable(f"the model broke off with {status}{why}", usage=usage)
        if status >= 500:
            raise ProviderDown(f"OpenRouter failed with {status}{why}")
        self._raise_refused(status, why, usage)

    def _raise_refused(self, status: int, why: str, usage: Usage) -> NoReturn:
        if status == 404:
            cause = "OpenRouter has no such model, or none that writes JSON by a schema: take another"
            raise LlmRefused(f"{cause}{why}", "LLM_NO_SUCH_MODEL", usage=usage)
        raise LlmRefused(f"OpenRouter refuses this request with {status}{why}", "LLM_BAD_REQUEST", usage=usage)


def _request_body(
    messages: Sequence[Message], model: str, schema: type[BaseModel] | None, max_tokens: int
) -> dict[str, Any]:
    """It names no temperature: models that think take none, and all parameters are required of who answers."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": each.role, "content": each.content} for each in messages],
        "max_tokens": max_tokens + REASONING_TOKENS,
    }
    if schema is not None:
        wanted = {"name": schema.__name__[:64], "strict": True, "schema": strict_schema(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        body["provider"] = {"require_parameters": True}
    return body


def _reply(body: dict[str, Any], choice: dict[str, Any], text: str) -> Reply:
    return Reply(
        text=text,
        json=None,
        usage=_usage(body),
        model=str(body.get("model") or "")[:200],
        id=str(body.get("id") or "")[:200],
        finish_reason=str(choice.get("finish_reason") or "")[:40],
    )


def _decode_json(reply: Reply) -> Reply:
    """An answer that was cut off is not worth a repair, which would be cut off at the same place."""
    try:
        decoded = json.loads(_remove_code_fence(reply.text))
    except (ValueError, RecursionError) as error:
        if reply.finish_reason == "length":
            raise CutShort("the model's answer ends within its JSON: allow more tokens", usage=reply.usage) from error
        raise InvalidJson("the model's answer is no JSON", reply.text, usage=reply.usage) from error
    return Reply(reply.text, decoded, reply.usage, reply.model, reply.id, reply.finish_reason)


def _remove_code_fence(text: str) -> str:
    """Without the fence that some models put around their JSON, whatever they were asked."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text[3:-3].removeprefix("json").strip()
    return text


def _usage(body: dict[str, Any]) -> Usage:
    given = body.get("usage")
    given = given if isinstance(given, dict) else {}
    return Usage(_tokens(given.get("prompt_tokens")), _tokens(given.get("completion_tokens")), _cost(given.get("cost")))


def _tokens(given: Any) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= _MOST_TOKENS else 0


def _cost(given: Any) -> int | None:
    """OpenRouter tells credits, which are US dollars."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    cost = Decimal(str(given)) * 1_000_000
    return round(cost) if cost.is_finite() and 0 <= cost <= _MOST_COST else None


def _error_object(body: Any) -> dict[str, Any] | None:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {"message": error} if isinstance(error, str) and error else None


def _error_status(error: Mapping[str, Any]) -> int:
    """Of an error that came with a 200; without a code of its own it is a failure of the provider."""
    code = error.get("code")
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599 else 502


def _error_type(error: Mapping[str, Any]) -> str:
    metadata = error.get("metadata")
    kind = metadata.get("error_type") if isinstance(metadata, dict) else None
    return kind if isinstance(kind, str) else ""


def _is_moderation(error: Mapping[str, Any]) -> bool:
    metadata = error.get("metadata")
    return isinstance(metadata, dict) and ("reasons" in metadata or "flagged_input" in metadata)
