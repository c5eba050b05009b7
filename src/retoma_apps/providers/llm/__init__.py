"""Language models: OpenRouter, its stand-in, and a small model on this machine; one port for all."""

from retoma_apps.providers.llm.errors import (
    ContentFiltered,
    CutShort,
    InvalidAnswer,
    InvalidJson,
    LlmError,
    LlmRefused,
    LlmUnavailable,
)
from retoma_apps.providers.llm.offline import Accuracy, Example, Guess, OfflineLlm, OfflineModel, trained
from retoma_apps.providers.llm.openrouter import OpenRouter, OpenRouterSettings
from retoma_apps.providers.llm.port import Llm, Message, Reply, Usage
from retoma_apps.providers.llm.prompts import quoted, rule
from retoma_apps.providers.llm.structured import Structured, structured

__all__ = [
    "Accuracy",
    "ContentFiltered",
    "CutShort",
    "Example",
    "Guess",
    "InvalidAnswer",
    "InvalidJson",
    "Llm",
    "LlmError",
    "LlmRefused",
    "LlmUnavailable",
    "Message",
    "OfflineLlm",
    "OfflineModel",
    "OpenRouter",
    "OpenRouterSettings",
    "Reply",
    "Structured",
    "Usage",
    "quoted",
    "rule",
    "structured",
    "trained",
]
