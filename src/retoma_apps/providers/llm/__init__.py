"""Language models: OpenRouter, its stand-in, and a small model on this machine, behind one port."""

from retoma_apps.providers.llm.errors import InvalidJson
from retoma_apps.providers.llm.models import LanguageModel, configured_models, make_model_name, split_models
from retoma_apps.providers.llm.offline import Accuracy, Example, Guess, OfflineLlm
from retoma_apps.providers.llm.port import Llm, Message, Reply, Usage
from retoma_apps.providers.llm.prompts import quote_text, quoting_rule
from retoma_apps.providers.llm.registry import PROVIDERS, configured_providers
from retoma_apps.providers.llm.structured import ask_structured
