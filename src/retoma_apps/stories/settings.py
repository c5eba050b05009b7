"""The settings of the application. Providers read their own."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class StorySettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="STORIES_", env_file=".env", extra="ignore")

    model: str = Field("openai/gpt-5-mini", description="The language model for scripts and translations.")
    fallback_models: str = Field("", description="The models that replace it if it fails, separated by commas.")
