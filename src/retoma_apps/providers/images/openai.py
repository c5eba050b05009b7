"""Client for any service with an OpenAI-compatible images API.

Services send the picture in their answer or link to it; both are supported. They support only a few sizes, so the
client requests the nearest shape and resizes the result to the requested size.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from retoma.connections import ConnectionField, ConnectionType
from retoma.errors import ProviderDown, ProviderRejected
from retoma.outgoing import HttpClient, NoResponse, Response, UnsafeUrl
from retoma_apps.providers.connection_fields import API_KEY
from retoma_apps.providers.http_service import HttpService, ServiceSettings
from retoma_apps.providers.images.errors import ImageRefused, ImageUnavailable, InvalidImage
from retoma_apps.providers.images.resize import resize_to_fill
from retoma_apps.providers.responses import format_provider_message, parse_json_object

DEFAULT_RETRY_DELAY = timedelta(seconds=20)
_LARGEST_PICTURE = 30 * 1024**2
_LONGEST_PROMPT = 4_000
_REJECTED = "the image service rejected our credentials: check {} and billing"
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_FILTERED = ("content_policy_violation", "moderation_blocked", "content_filter")


class OpenAiImagesSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="IMAGES_")

    base_url: str = "https://api.openai.com/v1"
    model: str = "gpt-image-1"
    sizes: str = Field(
        "1024x1024,1536x1024,1024x1536",
        pattern=r"^\d{2,5}x\d{2,5}(,\d{2,5}x\d{2,5})*$",
        description="The sizes that the model supports.",
    )
    timeout_seconds: float = Field(180.0, gt=0, description="Timeout for one picture.")


class OpenAiImages(HttpService[OpenAiImagesSettings]):
    name = "openai"
    variables: tuple[str, ...] = ("IMAGES_API_KEY",)
    follows_notes = True
    label = "the image service"
    no_key = "images need an API key: set IMAGES_API_KEY"
    settings_type: type[OpenAiImagesSettings] = OpenAiImagesSettings
    account_errors = dict.fromkeys((401, 402, 403), _REJECTED.format("IMAGES_API_KEY"))
    largest_answer = _LARGEST_PICTURE * 3 // 2

    def __init__(self, settings: OpenAiImagesSettings | None = None, outgoing: HttpClient | None = None) -> None:
        super().__init__(settings, outgoing)
        self.model = self._settings.model

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        size = nearest_size(self._settings.sizes.split(","), width, height)
        body = {"model": self.model, "prompt": prompt[:_LONGEST_PROMPT], "n": 1, "size": size}
        headers = {"Authorization": f"Bearer {self._key}"}
        answer = await self._request("POST", "/images/generations", headers, json=body)
        image = self._first_image(answer)
        return await resize_to_fill(await self._get_picture(image), width, height)

    async def check_account(self) -> str:
        answer = await self._check_access("/models", {"Authorization": f"Bearer {self._key}"})
        listed = (parse_json_object(answer) or {}).get("data")
        known = [each.get("id") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        has_model = "" if not known or self.model in known else f", but does not list the model {self.model!r:.80}"
        return f"the image service accepts the key{has_model}"

    def _timeout_error(self, error: NoResponse) -> Exception:
        return ImageUnavailable(f"the image service timed out: {error}", "IMAGE_TIMEOUT")

    def _first_image(self, answer: Response) -> dict[str, Any]:
        """Return the first picture of a successful answer. Raise the error that each other answer requires."""
        body = parse_json_object(answer) or {}
        if not answer.is_success:
            self._raise_error(answer, _error_object(body))
        images = body.get("data")
        if not isinstance(images, list) or not images or not isinstance(images[0], dict):
            raise InvalidImage(f"the image service answered {answer.status} without a picture")
        return images[0]

    async def _get_picture(self, image: dict[str, Any]) -> bytes:
        if isinstance(image.get("b64_json"), str):
            try:
                return b64decode(image["b64_json"], validate=True)
            except (binascii.Error, ValueError) as error:
                raise InvalidImage("the picture in the answer is not valid base64") from error
        if isinstance(image.get("url"), str):
            return await self._download(image["url"])
        raise InvalidImage("the answer has neither a picture nor a link to one")

    async def _download(self, url: str) -> bytes:
        """Fetch without the key: the link may lead to any host."""
        with TemporaryDirectory() as folder:
            path = Path(folder, "picture")
            try:
                await self._links.download(url, path, limit=_LARGEST_PICTURE, timeout=self._settings.timeout_seconds)
            except UnsafeUrl as error:
                raise InvalidImage(f"the picture's link leads to an address that is not allowed: {error}") from error
            except NoResponse as error:
                raise ImageUnavailable(f"the picture could not be downloaded: {error}") from error
            return await asyncio.to_thread(path.read_bytes)

    def _raise_error(self, answer: Response, error: Mapping[str, Any]) -> NoReturn:
        why, kinds = format_provider_message(error.get("message"), self._key), (error.get("code"), error.get("type"))
        if any(kind in _NO_CREDIT for kind in kinds):
            raise ProviderRejected(f"{self.account_errors[402]}{why}")
        if answer.status not in self.account_errors and any(kind in _FILTERED for kind in kinds):
            raise ImageRefused(
                "the image service refused this prompt under its content policy", "IMAGE_CONTENT_FILTERED"
            )
        self._raise_account_error(answer, answer.status, why, DEFAULT_RETRY_DELAY)
        if answer.status >= 500:
            raise ProviderDown(f"the image service failed with {answer.status}{why}")
        raise ImageRefused(f"the image service rejected the request with {answer.status}{why}", "IMAGE_BAD_REQUEST")


class FallbackImagesSettings(OpenAiImagesSettings):
    model_config = SettingsConfigDict(env_prefix="IMAGES_FALLBACK_")


class FallbackImages(OpenAiImages):
    """A second service, or another model of the first, for pictures that the first one fails to make."""

    name = "openai-fallback"
    variables: tuple[str, ...] = ("IMAGES_FALLBACK_API_KEY",)
    no_key = "the second image service needs an API key: set IMAGES_FALLBACK_API_KEY"
    settings_type = FallbackImagesSettings
    account_errors = dict.fromkeys((401, 402, 403), _REJECTED.format("IMAGES_FALLBACK_API_KEY"))


def _describe(service: type[OpenAiImages], title: str) -> ConnectionType:
    return ConnectionType(
        service.name,
        title,
        (
            API_KEY,
            ConnectionField("base_url", "Address", "url", required=False, help="Default: that of OpenAI."),
            ConnectionField("model", "Model", required=False),
        ),
        service.try_connection,
        variables=service.variables,
    )


CONNECTION = _describe(OpenAiImages, "Images")
FALLBACK_CONNECTION = _describe(FallbackImages, "Images, second service")


def nearest_size(sizes: Sequence[str], width: int, height: int) -> str:
    """Return the size whose aspect ratio is nearest."""

    def distance(size: str) -> float:
        wide, high = map(int, size.split("x"))
        return abs(wide / max(high, 1) - width / height)

    return min(sizes, key=distance)


def _error_object(body: dict[str, Any]) -> dict[str, Any]:
    error = body.get("error")
    return error if isinstance(error, dict) else {"message": error}
