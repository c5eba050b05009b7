"""The settings of the application. Providers read their own."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ClassifierSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="CLASSIFIER_", env_file=".env", extra="ignore")

    fallback_models: str = Field(
        "", description="The models that replace that of a project if it fails, separated by commas."
    )
