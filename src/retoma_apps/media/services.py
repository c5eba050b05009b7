"""The services that every film needs: files, voices and a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from retoma import GiveUp, Settings
from retoma.connections import TenantConnections
from retoma.files import FileSettings, FileStore, create_file_store
from retoma_apps.providers import speech, youtube
from retoma_apps.providers.speech import Speech, azure, default_voice, elevenlabs, find_speaker
from retoma_apps.providers.youtube import OpenChannel


@dataclass(frozen=True)
class SentVideo:
    """A video on the channel of an account, as its upload is recorded. `is_earlier` if an earlier revision sent it."""

    account: str
    video_id: str
    url: str
    is_earlier: bool = False


@dataclass(frozen=True, kw_only=True)
class FilmServices:
    """`voices` are by provider. `channel` returns the channel of an account: a local folder for all accounts, or for
    none. `size` and `fps` are those of the film."""

    files: FileStore
    voices: Mapping[str, Speech]
    channel: OpenChannel
    size: tuple[int, int] = (1920, 1080)
    fps: int = 30

    def for_tenant(self, connections: TenantConnections, watch_url: str) -> FilmServices:
        """Return the same services with the voices and the channels of a tenant's connections."""
        return replace(self, **_read_connected(connections, watch_url))

    def list_offline(self, **own: bool) -> tuple[str, ...]:
        """Return the names of the services that this machine replaces, of these and of an application's `own`."""
        offline = {
            **own,
            "speech": all(provider.is_offline for provider in self.voices.values()),
            "youtube": self.channel("").is_offline,
        }
        return tuple(name for name, is_offline in offline.items() if is_offline)

    def find_voice(self, name: str, language: str) -> tuple[Speech, str, str]:
        """Return the voice's provider, its name there and its public name; without a name, the language's default
        voice."""
        name = name or default_voice(language, self.voices)
        known = find_speaker(name)
        if known.provider not in self.voices or not known.speaks(language):
            raise GiveUp(
                f"the voice {name!r} has no key or does not speak {language}: set the key of {known.provider} and "
                f"resume, or fork it with another voice; available: {', '.join(self.voices)}",
                "NO_VOICE",
            )
        return self.voices[known.provider], known.voice, name

    async def find_upload(self, key: str) -> SentVideo | None:
        """Return the video that an upload has created. The key is the video's mark and the account."""
        mark, _, account = key.partition(" ")
        found = await self.channel(account).find(mark)
        return None if found is None else SentVideo(account, found.video_id, found.url)

    async def delete_upload(self, sent: dict[str, Any]) -> None:
        """Delete the video, unless an earlier revision has sent it: that one may have been published."""
        if not sent.get("is_earlier"):
            await self.channel(sent["account"]).delete(sent["video_id"])

    def find_session(self, mark: str) -> None:
        """Return None: an upload session that was not recorded has received no byte, so it leaves nothing behind."""


def read_film_services(watch_url: str) -> FilmServices:
    """Return the services that the environment configures. A channel on this machine has a page for each video at
    `watch_url`, in which `{id}` is its id."""
    settings = Settings()
    return FilmServices(
        files=create_file_store(FileSettings(home=settings.home, public_url=settings.public_url)),
        **_read_connected(TenantConnections(), watch_url),
    )


def _read_connected(connections: TenantConnections, watch_url: str) -> dict[str, Any]:
    folder = Settings().home.absolute() / "channel"
    return {
        "voices": {provider.name: provider for provider in speech.configured_providers(connections)},
        "channel": youtube.configured_providers(folder, watch_url, connections)[0],
    }


CONNECTIONS = (azure.CONNECTION, elevenlabs.CONNECTION, youtube.CONNECTION)
"""The services that every film may use, whose credentials people enter."""
