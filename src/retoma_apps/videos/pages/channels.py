"""Channels: all of them, and each with the form of what its videos have in common."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from starlette.responses import Response

from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.server import Page, Visit
from retoma_apps.videos.channels import channel_of, kept_channel
from retoma_apps.videos.models import Channel, is_channel_name
from retoma_apps.videos.pages import forms
from retoma_apps.videos.pages.common import Common
from retoma_apps.videos.pages.forms import CHANNEL, Form, Wrong
from retoma_apps.videos.pages.words import Words

ROUTE = "/videos/channels"


class Channels:
    def __init__(self, common: Common) -> None:
        self._common = common

    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show_all, self.add), Page(f"{ROUTE}/{{name}}", self.show, self.change))

    async def show_all(self, visit: Visit, status: int = 200, form: Form | None = None) -> Response:
        kept = {each.tenant: Channel.model_validate(each.value) for each in await visit.client.profiles()}
        return visit.show(
            "videos_channels.html",
            status,
            names=await self._common.channels(visit.client),
            kept=kept,
            usual=Channel(),
            form=form or Form({"channel": ""}),
            **await self._common.values(visit),
        )

    async def add(self, visit: Visit) -> Response:
        """To the form of the channel of this name, which is there with its first video or when it is saved."""
        name = forms.written(visit.fields, ("channel",))["channel"]
        if not is_channel_name(name):
            wrong = {"channel": Words(visit.language)("wrong channel")}
            return await self.show_all(visit, 422, Form({"channel": name}, wrong))
        return visit.go(_address(name))

    async def show(self, visit: Visit, status: int = 200, form: Form | None = None) -> Response:
        name = _name(visit)
        visit.path = _address(name)
        channel, revision = await kept_channel(visit.client, name)
        return visit.show(
            "videos_channel.html",
            status,
            name=name,
            action=visit.path,
            revision=revision,
            form=form or forms.of_channel(channel),
            voices=forms.choices(self._common.studio.voices),
            **await self._common.values(visit),
        )

    async def change(self, visit: Visit) -> Response:
        name, given = _name(visit), forms.written(visit.fields, CHANNEL)
        kept = await channel_of(visit.client, name)
        form = Form(given)
        try:
            channel = forms.read_channel(given, Words(visit.language), self._common.studio.voices, kept.voice)
            await visit.client.set_profile(name, channel.model_dump(), revision=_seen(visit))
        except Wrong as error:
            return await self.show(visit, 422, replace(form, wrong=error.found))
        except Conflict:
            return await self.show(visit, 409, replace(form, is_bounced=True))
        except InvalidInput as error:
            return await self.show(visit, 422, replace(form, wrong={"style": str(error)}))
        return visit.go(_address(name), "saved")


def _address(name: str) -> str:
    return f"{ROUTE}/{quote(name, safe='')}"


def _name(visit: Visit) -> str:
    name: str = visit.request.path_params["name"]
    if not is_channel_name(name):
        raise NotFound("there is no such channel")
    return name


def _seen(visit: Visit) -> int:
    given = visit.fields.get("revision", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else -1
