"""The settings of the application. Providers read their own."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class VideoSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="VIDEOS_", env_file=".env", extra="ignore")

    model: str = Field("openai/gpt-5-mini", description="The language model for research and scripts.")
    fallback_models: str = Field("", description="The models that replace it if it fails, separated by commas.")
