"""OpenRouter: a thin client for its chat completions.

A model that has begun to answer may still fail: the status is then 200, and the error is in the body or in its choice.
Both are handled as if they had the status that they name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn

from pydantic import BaseModel, Field
from pydantic_settings import SettingsConfigDict

from retoma.connections import ConnectionType
from retoma.errors import ProviderDown
from retoma.outgoing import NoResponse, Response
from retoma_apps.providers.connection_fields import API_KEY
from retoma_apps.providers.http_service import HttpService, ServiceSettings
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

DEFAULT_RETRY_DELAY = timedelta(seconds=10)
REASONING_TOKENS = 3_500  # tokens of reasoning before an answer; the provider counts them as output
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
_STATUS_OF = {
    "authentication": 401,
    "payment_required": 402,
    "permission_denied": 403,
    "not_found": 404,
    "rate_limit_exceeded": 429,
    "timeout": 504,
    **dict.fromkeys(_TEMPORARY_ERRORS, 503),
}


class OpenRouterSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="OPENROUTER_")

    base_url: str = "https://openrouter.ai/api/v1"
    timeout_seconds: float = Field(90.0, gt=0, description="Timeout for one answer.")
    title: str = Field("Retoma", description="The application name that OpenRouter shows for these calls.")


class OpenRouter(HttpService[OpenRouterSettings]):
    name = "openrouter"
    label = "OpenRouter"
    no_key = "OpenRouter needs an API key: set OPENROUTER_API_KEY"
    variables: tuple[str, ...] = ("OPENROUTER_API_KEY",)
    settings_type = OpenRouterSettings
    account_errors: Mapping[int, str] = {
        401: "OpenRouter rejected our key: set OPENROUTER_API_KEY to a valid one",
        402: "the OpenRouter account has no credit left: add credit",
        403: "the OpenRouter key may not use this model: allow it at OpenRouter, or use another model",
    }

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        model: str,
        schema: type[BaseModel] | None = None,
        max_tokens: int,
    ) -> Reply:
        headers = {"Authorization": f"Bearer {self._key}", "X-OpenRouter-Title": self._settings.title}
        body = _request_body(messages, model, schema, max_tokens)
        answer = await self._request("POST", "/chat/completions", headers, json=body)
        parsed = self._parse_body(answer)
        choice = self._first_choice(answer, parsed)
        reply = _reply(parsed, choice, self._get_text(parsed, choice))
        return reply if schema is None else _decode_json(reply)

    async def check_account(self) -> str:
        answer = await self._check_access("/key", {"Authorization": f"Bearer {self._key}"})
        data = (parse_json_object(answer) or {}).get("data")
        left = data.get("limit_remaining") if isinstance(data, dict) else None
        return "OpenRouter accepts the key" + (f"; US$ {left:.2f} left" if isinstance(left, int | float) else "")

    def _timeout_error(self, error: NoResponse) -> Exception:
        return LlmUnavailable(f"OpenRouter did not answer: {error}", "LLM_TIMEOUT")

    def _parse_body(self, answer: Response) -> dict[str, Any]:
        """Return the body of a successful answer. Raise the error that each other answer requires."""
        body = parse_json_object(answer)
        if not answer.is_success:
            self._raise_error(answer, answer.status, _error_object(body) or {}, Usage())
        if body is None:
            kind = answer.headers.get("content-type", "no type")[:60]
            raise InvalidAnswer(
                f"OpenRouter answered {answer.status} with {kind!r}, which is not a JSON object, or is too long"
            )
        if error := _error_object(body):
            self._raise_error(answer, _error_status(error), error, _usage(body))
        return body

    def _first_choice(self, answer: Response, body: dict[str, Any]) -> dict[str, Any]:
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            raise InvalidAnswer("OpenRouter's answer contains no choice", usage=_usage(body))
        if choice.get("finish_reason") == "error" or _error_object(choice):
            error = _error_object(choice) or {}
            self._raise_error(answer, _error_status(error), error, _usage(body))
        return choice

    def _get_text(self, body: dict[str, Any], choice: dict[str, Any]) -> str:
        message = choice.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if choice.get("finish_reason") == "content_filter" or (isinstance(message, dict) and message.get("refusal")):
            raise ContentFiltered("the model refused to answer for this text", usage=_usage(body))
        if not isinstance(content, str):
            raise InvalidAnswer("OpenRouter's answer contains no text", usage=_usage(body))
        return content

    def _raise_error(self, answer: Response, status: int, error: Mapping[str, Any], usage: Usage) -> NoReturn:
        """Raise by the provider's own error type if it has one, else by the status."""
        kind = _error_type(error)
        status = _STATUS_OF.get(kind, status)
        why = format_provider_message(error.get("message"), self._key)
        if kind in _FILTERED or (status == 403 and _is_moderation(error)):
            raise ContentFiltered("the provider refused this text under its content policy", usage=usage)
        if kind in _TOO_LONG or status == 413:
            raise LlmRefused(
                f"the text is too long for this model: shorten it, or use another model{why}",
                "LLM_TOO_LONG",
                usage=usage,
            )
        self._raise_account_error(answer, status, why, DEFAULT_RETRY_DELAY)
        if status in (408, 504):
            raise LlmUnavailable(f"OpenRouter timed out waiting for the model{why}", "LLM_TIMEOUT", usage=usage)
        if status >= 500 and answer.is_success:
            raise LlmUnavailable(f"the model failed while answering, with {status}{why}", usage=usage)
        if status >= 500:
            raise ProviderDown(f"OpenRouter failed with {status}{why}")
        self._raise_refused(status, why, usage)

    def _raise_refused(self, status: int, why: str, usage: Usage) -> NoReturn:
        if status == 404:
            cause = "OpenRouter has no such model, or it does not support JSON schemas: use another model"
            raise LlmRefused(f"{cause}{why}", "LLM_NO_SUCH_MODEL", usage=usage)
        raise LlmRefused(f"OpenRouter rejected this request with {status}{why}", "LLM_BAD_REQUEST", usage=usage)


def _request_body(
    messages: Sequence[Message], model: str, schema: type[BaseModel] | None, max_tokens: int
) -> dict[str, Any]:
    """Set no temperature: reasoning models reject it, and `require_parameters` demands support for every parameter."""
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
    """Decode the JSON. A truncated answer is not worth a repair, which would be truncated at the same point."""
    try:
        decoded = json.loads(_remove_code_fence(reply.text))
    except (ValueError, RecursionError) as error:
        if reply.finish_reason == "length":
            raise CutShort(
                "the model's answer was cut off within its JSON: allow more tokens", usage=reply.usage
            ) from error
        raise InvalidJson("the model's answer is not JSON", reply.text, usage=reply.usage) from error
    return Reply(reply.text, decoded, reply.usage, reply.model, reply.id, reply.finish_reason)


def _remove_code_fence(text: str) -> str:
    """Remove the fence that some models put around their JSON regardless of instructions."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text[3:-3].removeprefix("json").strip()
    return text


def _usage(body: dict[str, Any]) -> Usage:
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Usage(_tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens")), _cost(usage.get("cost")))


def _tokens(count: Any) -> int:
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MOST_TOKENS else 0


def _cost(dollars: Any) -> int | None:
    """Convert OpenRouter's credits, which are US dollars, to millionths."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        return None
    cost = Decimal(str(dollars)) * 1_000_000
    return round(cost) if cost.is_finite() and 0 <= cost <= _MOST_COST else None


def _error_object(body: Any) -> dict[str, Any] | None:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {"message": error} if isinstance(error, str) and error else None


def _error_status(error: Mapping[str, Any]) -> int:
    """Return the status of an error that came with a 200; without a code it counts as a provider failure."""
    code = error.get("code")
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599 else 502


def _error_type(error: Mapping[str, Any]) -> str:
    metadata = error.get("metadata")
    kind = metadata.get("error_type") if isinstance(metadata, dict) else None
    return kind if isinstance(kind, str) else ""


def _is_moderation(error: Mapping[str, Any]) -> bool:
    metadata = error.get("metadata")
    return isinstance(metadata, dict) and ("reasons" in metadata or "flagged_input" in metadata)


CONNECTION = ConnectionType(
    OpenRouter.name, "OpenRouter", (API_KEY,), OpenRouter.try_connection, variables=OpenRouter.variables
)
