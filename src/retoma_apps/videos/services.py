"""The external services that a video needs, or their offline implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retoma import GiveUp
from retoma.files import FileStore
from retoma_apps.providers.footage import Footage
from retoma_apps.providers.images import Images
from retoma_apps.providers.speech import Speech, default_voice, find_speaker
from retoma_apps.providers.youtube import OpenChannel
from retoma_apps.videos.steps.writing.port import Writer


@dataclass(frozen=True)
class SentVideo:
    """A video on the channel of an account, as its upload is recorded."""

    account: str
    video_id: str
    url: str


@dataclass(frozen=True)
class Services:
    """`voices` are by provider. `channel` returns the channel of an account: a local folder for all accounts, or for
    none. `size` and `fps` are those of the film. The spare writers and image services replace the first one if it
    fails; steps take them as the resources `writer` and `images`."""

    files: FileStore
    writer: Writer
    voices: Mapping[str, Speech]
    footage: Footage
    images: Images
    channel: OpenChannel
    size: tuple[int, int] = (1920, 1080)
    fps: int = 30
    spare_writers: Sequence[Writer] = ()
    spare_images: Sequence[Images] = ()

    @property
    def offline_services(self) -> tuple[str, ...]:
        """The names of the services that are replaced by this machine."""
        offline = {
            "writer": self.writer.is_offline,
            "speech": all(provider.is_offline for provider in self.voices.values()),
            "footage": self.footage.is_offline,
            "images": self.images.is_offline,
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
                f"resume, or fork the video with another voice; available: {', '.join(self.voices)}",
                "NO_VOICE",
            )
        return self.voices[known.provider], known.voice, name

    async def find_upload(self, key: str) -> SentVideo | None:
        """Return the video that an upload has created. The key is the video's mark and the account."""
        mark, _, account = key.partition(" ")
        found = await self.channel(account).find(mark)
        return None if found is None else SentVideo(account, found.video_id, found.url)

    async def delete_upload(self, sent: dict[str, str]) -> None:
        await self.channel(sent["account"]).delete(sent["video_id"])

    def find_session(self, mark: str) -> None:
        """Return None: an upload session that was not recorded has received no byte, so it leaves nothing behind."""
