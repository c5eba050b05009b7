"""How a question to a model ends that has no good answer.

LlmError                 worth another try; `usage` is what this one has cost
├── LlmUnavailable       no answer in time, or none after the model had begun (LLM_TIMEOUT, LLM_UNAVAILABLE)
├── InvalidAnswer        an answer that is not the provider's wire format (LLM_INVALID_ANSWER)
├── InvalidJson          the model did not write the JSON that was asked for (LLM_INVALID_JSON)
└── CutShort             the model used up its tokens within the JSON (LLM_CUT_SHORT)
LlmRefused (GiveUp)      no other try would help; the message says what would
ContentFiltered (GiveUp) the provider or the model declines this text (LLM_CONTENT_FILTERED)

No document is to blame where the whole provider fails or refuses our account: then the engine's own ProviderDown,
ProviderRefuses and RateLimited let the pool wait, and no attempt is used up.
"""

from __future__ import annotations

from retoma import GiveUp
from retoma_apps.providers.llm.port import Usage


class LlmError(Exception):
    code = "LLM_ERROR"

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage or Usage()


class LlmUnavailable(LlmError):
    """After LLM_TIMEOUT the call may have been paid for: OpenRouter tells an id only with its answer."""

    def __init__(self, message: str, code: str = "LLM_UNAVAILABLE", *, usage: Usage | None = None) -> None:
        super().__init__(message, usage=usage)
        self.code = code


class InvalidAnswer(LlmError):
    code = "LLM_INVALID_ANSWER"


class InvalidJson(LlmError):
    """`text` is what the model wrote."""

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
