"""The services that every film needs: files, voices and a channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from retoma import GiveUp, Settings
from retoma.connections import TenantConnections
from retoma.files import FileSettings, FileStore, create_file_store
from retoma_apps.providers import footage, images, llm, speech, youtube
from retoma_apps.providers.chains import build_per_tenant, chain_providers, compose
from retoma_apps.providers.images import Images
from retoma_apps.providers.llm import Usage, make_model_name
from retoma_apps.providers.provider import Provider
from retoma_apps.providers.speech import Speech, azure, default_voice, elevenlabs, find_speaker
from retoma_apps.providers.topics import Topic
from retoma_apps.providers.youtube import OpenChannel

UsageCallback = Callable[[Usage], None]


class FilmWriter(Protocol):
    """Charges name a writer by `provider` and `name`, which is the model. `is_offline` says whether it runs on this
    machine, without a service. `topics` are the only ones that it can write about; None if it can write about any."""

    provider: str
    name: str
    is_offline: bool

    @property
    def topics(self) -> Sequence[Topic] | None: ...


_PROVIDERS: dict[str, Sequence[type[Provider]]] = {
    "writer": llm.PROVIDERS,
    "speech": speech.PROVIDERS,
    "footage": footage.PROVIDERS,
    "images": images.PROVIDERS,
    "youtube": youtube.PROVIDERS,
}
VARIABLES = {what: tuple(name for each in known for name in each.variables) for what, known in _PROVIDERS.items()}
W = TypeVar("W", bound=FilmWriter)


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


@dataclass(frozen=True, kw_only=True)
class WrittenFilmServices(FilmServices, Generic[W]):
    """The spare writers and image services replace the first one if it fails; steps take them as the resources `writer`
    and `images`."""

    writer: W
    images: Images
    spare_writers: Sequence[W] = ()
    spare_images: Sequence[Images] = ()

    @property
    def offline_services(self) -> tuple[str, ...]:
        """The names of the services that are replaced by this machine."""
        return self.list_offline()

    def list_offline(self, **own: bool) -> tuple[str, ...]:
        """Return the names of the services that this machine replaces, of these and of an application's `own`."""
        offline = {
            "writer": self.writer.is_offline,
            **own,
            "images": self.images.is_offline,
            "speech": all(provider.is_offline for provider in self.voices.values()),
            "youtube": self.channel("").is_offline,
        }
        return tuple(name for name, is_offline in offline.items() if is_offline)

    @property
    def offline_variables(self) -> dict[str, tuple[str, ...]]:
        """The variables that would configure a service, by the name of each that is replaced by this machine."""
        return {service: VARIABLES[service] for service in self.offline_services}

    def chain_writers(self) -> Any:
        return chain_providers(
            [self.writer, *self.spare_writers], lambda each: make_model_name(each.provider, each.name)
        )

    def chain_images(self) -> Any:
        return chain_providers([self.images, *self.spare_images])


def build_resources(
    services: WrittenFilmServices[Any], build: Callable[[TenantConnections], Any] | None
) -> dict[str, Any]:
    """Return the resources of the steps. `build` returns the services with the connections of a tenant."""

    def per_tenant(use: Callable[[WrittenFilmServices[Any]], Any]) -> Any:
        return build_per_tenant(build and compose(use, build), use(services))

    return {
        "services": build_per_tenant(build, services),
        "writer": per_tenant(WrittenFilmServices.chain_writers),
        "images": per_tenant(WrittenFilmServices.chain_images),
    }


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
