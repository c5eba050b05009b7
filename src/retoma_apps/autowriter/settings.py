"""The settings of the application. Providers read their own."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

PIPELINE_VERSION = "1"
"""Raise it when articles should be written differently. Existing articles change only if they are regenerated."""


class AutoWriterSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="AUTOWRITER_", env_file=".env", extra="ignore")

    model: str = Field("openai/gpt-5-mini", description="The language model that writes articles.")
    fallback_models: str = Field("", description="The models that replace it if it fails, separated by commas.")
