"""Errors of calls to a language model.

LlmError                 may be retried; `usage` is what this call has cost
├── LlmUnavailable       no answer in time, or the model failed while answering (LLM_TIMEOUT, LLM_UNAVAILABLE)
├── InvalidAnswer        an answer that is not in the provider's wire format (LLM_INVALID_ANSWER)
├── InvalidJson          the model did not write the requested JSON (LLM_INVALID_JSON)
└── CutShort             the model ran out of tokens within the JSON (LLM_CUT_SHORT)
LlmRefused (GiveUp)      a retry would not help; the message says what would
ContentFiltered (GiveUp) the provider or the model refuses this text (LLM_CONTENT_FILTERED)

If the whole provider fails or rejects our account, no document is at fault: the engine's ProviderDown,
ProviderRejected and RateLimited pause the pool, and no attempt is used up.
"""

from __future__ import annotations

from retoma import GiveUp
from retoma_apps.providers.llm.port import Usage


class LlmError(Exception):
    code = "LLM_ERROR"

    def __init__(self, message: str, code: str | None = None, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.usage = usage or Usage()


class LlmUnavailable(LlmError):
    """After LLM_TIMEOUT the call may have been paid for: OpenRouter returns an id only with its answer."""

    code = "LLM_UNAVAILABLE"


class InvalidAnswer(LlmError):
    code = "LLM_INVALID_ANSWER"


class InvalidJson(LlmError):
    """`text` is the model's output."""

    code = "LLM_INVALID_JSON"

    def __init__(self, message: str, text: str, *, usage: Usage | None = None) -> None:
        super().__init__(message, usage=usage)
        self.text = text


class CutShort(LlmError):
    code = "LLM_CUT_SHORT"


class LlmRefused(GiveUp):
    def __init__(self, message: str, code: str, *, usage: Usage | None = None) -> None:
        super().__init__(message, code)
        self.usage = usage or Usage()


class ContentFiltered(LlmRefused):
    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message, "LLM_CONTENT_FILTERED", usage=usage)
