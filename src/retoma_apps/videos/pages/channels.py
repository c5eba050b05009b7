"""The pages of channels: the list, and each with the form of its settings."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from starlette.responses import Response

from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.server import Page, PageContext
from retoma_apps.forms import Form, InvalidForm, parse_revision
from retoma_apps.media.channels import get_channel, get_channel_and_revision
from retoma_apps.media.models import Channel, is_channel_name
from retoma_apps.videos.operations.budgets import apply_budget
from retoma_apps.videos.operations.channels import check_account
from retoma_apps.videos.pages import forms
from retoma_apps.videos.pages.common import VideoPages
from retoma_apps.videos.pages.forms import CHANNEL_FIELDS

ROUTE = "/videos/channels"


class ChannelPages(VideoPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROUTE, self.show_all, self.add, submit_scope="runs:write"),
            Page(f"{ROUTE}/{{name}}", self.show, self.change, submit_scope="runs:write"),
        )

    async def show_all(self, context: PageContext, status: int = 200, form: Form | None = None) -> Response:
        kept = {
            each.tenant: Channel.model_validate(each.value) for each in await context.client.tenants.list_profiles()
        }
        return context.render(
            "videos_channels.html",
            status,
            names=await self.list_channels(context.client),
            kept=kept,
            usual=Channel(),
            form=form or Form({"channel": ""}),
            **await self.get_values(context),
        )

    async def add(self, context: PageContext) -> Response:
        """Redirect to the form of this channel, which exists from its first video or save on."""
        name = forms.submitted_fields(context.fields, ("channel",))["channel"]
        if not is_channel_name(name):
            wrong = {"channel": context.gettext("Enter a name of 1 to 100 characters, without a slash.")}
            return await self.show_all(context, 422, Form({"channel": name}, wrong))
        return context.redirect(_address(name))

    async def show(self, context: PageContext, status: int = 200, form: Form | None = None) -> Response:
        name = _name(context)
        context.path = _address(name)
        channel, revision = await get_channel_and_revision(context.client, name)
        return context.render(
            "videos_channel.html",
            status,
            name=name,
            action=context.path,
            revision=revision,
            form=form or forms.channel_form(channel),
            voices=forms.list_voice_choices((await self.get_services(context, name)).voices),
            **await self.get_values(context),
        )

    async def change(self, context: PageContext) -> Response:
        name, given = _name(context), forms.submitted_fields(context.fields, CHANNEL_FIELDS)
        kept = await get_channel(context.client, name)
        form = Form(given)
        try:
            voices = (await self.get_services(context, name)).voices
            channel = forms.parse_channel(given, context.translator, voices, kept.voice)
            check_account(context.client, channel, kept)
            await context.client.tenants.set_profile(
                name, channel.model_dump(), revision=parse_revision(context.fields.get("revision", ""))
            )
            await apply_budget(context.client, name, channel)
        except InvalidForm as error:
            return await self.show(context, 422, replace(form, errors=error.errors))
        except Conflict:
            return await self.show(context, 409, replace(form, has_conflict=True))
        except InvalidInput as error:
            return await self.show(context, 422, replace(form, errors={"style": str(error)}))
        return context.redirect(_address(name), "saved")


def _address(name: str) -> str:
    return f"{ROUTE}/{quote(name, safe='')}"


def _name(context: PageContext) -> str:
    name: str = context.request.path_params["name"]
    allowed = context.client.allowed_tenants
    if not is_channel_name(name) or (allowed is not None and name not in allowed):
        raise NotFound("there is no such channel")
    return name
