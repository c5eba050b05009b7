"""Channels: all of them, and each with the form of what its videos have in common."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from starlette.responses import Response

from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.server import Page, PageContext
from retoma_apps.videos.channels import get_channel, get_channel_and_revision
from retoma_apps.videos.models import Channel, is_channel_name
from retoma_apps.videos.pages import forms
from retoma_apps.videos.pages.common import PageSupport
from retoma_apps.videos.pages.forms import CHANNEL_FIELDS, Form, InvalidForm
from retoma_apps.videos.pages.words import Words

ROUTE = "/videos/channels"


class ChannelPages:
    def __init__(self, common: PageSupport) -> None:
        self._common = common

    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show_all, self.add), Page(f"{ROUTE}/{{name}}", self.show, self.change))

    async def show_all(self, visit: PageContext, status: int = 200, form: Form | None = None) -> Response:
        kept = {each.tenant: Channel.model_validate(each.value) for each in await visit.client.tenants.list_profiles()}
        return visit.render(
            "videos_channels.html",
            status,
            names=await self._common.list_channels(visit.client),
            kept=kept,
            usual=Channel(),
            form=form or Form({"channel": ""}),
            **await self._common.get_values(visit),
        )

    async def add(self, visit: PageContext) -> Response:
        """To the form of the channel of this name, which is there with its first video or when it is saved."""
        name = forms.submitted_fields(visit.fields, ("channel",))["channel"]
        if not is_channel_name(name):
            wrong = {"channel": Words(visit.language)("wrong channel")}
            return await self.show_all(visit, 422, Form({"channel": name}, wrong))
        return visit.redirect(_address(name))

    async def show(self, visit: PageContext, status: int = 200, form: Form | None = None) -> Response:
        name = _name(visit)
        visit.path = _address(name)
        channel, revision = await get_channel_and_revision(visit.client, name)
        return visit.render(
            "videos_channel.html",
            status,
            name=name,
            action=visit.path,
            revision=revision,
            form=form or forms.channel_form(channel),
            voices=forms.list_voice_choices(self._common.services.voices),
            **await self._common.get_values(visit),
        )

    async def change(self, visit: PageContext) -> Response:
        name, given = _name(visit), forms.submitted_fields(visit.fields, CHANNEL_FIELDS)
        kept = await get_channel(visit.client, name)
        form = Form(given)
        try:
            channel = forms.parse_channel(given, Words(visit.language), self._common.services.voices, kept.voice)
            await visit.client.tenants.set_profile(name, channel.model_dump(), revision=_submitted_revision(visit))
        except InvalidForm as error:
            return await self.show(visit, 422, replace(form, errors=error.errors))
        except Conflict:
            return await self.show(visit, 409, replace(form, has_conflict=True))
        except InvalidInput as error:
            return await self.show(visit, 422, replace(form, errors={"style": str(error)}))
        return visit.redirect(_address(name), "saved")


def _address(name: str) -> str:
    return f"{ROUTE}/{quote(name, safe='')}"


def _name(visit: PageContext) -> str:
    name: str = visit.request.path_params["name"]
    if not is_channel_name(name):
        raise NotFound("there is no such channel")
    return name


def _submitted_revision(visit: PageContext) -> int:
    given = visit.fields.get("revision", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else -1
