"""Language models: OpenRouter, its stand-in, and a small model on this machine, behind one port."""

from retoma_apps.providers.llm.errors import (
    ContentFiltered,
    CutShort,
    InvalidAnswer,
    InvalidJson,
    LlmError,
    LlmRefused,
    LlmUnavailable,
)
from retoma_apps.providers.llm.offline import Accuracy, Example, Guess, OfflineLlm, OfflineModel, get_trained_model
from retoma_apps.providers.llm.openrouter import OpenRouter, OpenRouterSettings
from retoma_apps.providers.llm.port import Llm, Message, Reply, Usage
from retoma_apps.providers.llm.prompts import quote_text, quoting_rule
from retoma_apps.providers.llm.structured import StructuredReply, ask_structured

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
    "StructuredReply",
    "Usage",
    "ask_structured",
    "get_trained_model",
    "quote_text",
    "quoting_rule",
]
