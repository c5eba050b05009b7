"""Research and write scripts with a language model or offline, and report on their quality."""

from retoma_apps.videos.writing.headlines import thumbnail_texts
from retoma_apps.videos.writing.llm import LlmWriter
from retoma_apps.videos.writing.port import ResearchResult, ScriptResult, UsageCallback, Writer
from retoma_apps.videos.writing.quality import assess_quality
from retoma_apps.videos.writing.template import TemplateWriter

__all__ = [
    "LlmWriter",
    "ResearchResult",
    "ScriptResult",
    "TemplateWriter",
    "UsageCallback",
    "Writer",
    "assess_quality",
    "thumbnail_texts",
]
