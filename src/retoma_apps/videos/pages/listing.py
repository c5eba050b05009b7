"""All videos, the newest first, and the form that orders one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server import Page, Visit
from retoma_apps.videos.channels import TooLate, ordered
from retoma_apps.videos.overview import overview_of
from retoma_apps.videos.pages import forms
from retoma_apps.videos.pages.common import Common
from retoma_apps.videos.pages.forms import ORDER, Form, Wrong
from retoma_apps.videos.pages.looks import STAGES
from retoma_apps.videos.pages.words import Words
from retoma_apps.videos.pipeline import longform

ROUTE = "/videos/"
SHOWN = 20


class Listing:
    def __init__(self, common: Common) -> None:
        self._common = common

    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROUTE, self.show, self.order, nav=("Videos", "Vídeos")),
            Page(ROUTE.rstrip("/"), _to_all),
        )

    async def show(self, visit: Visit, status: int = 200, form: Form | None = None) -> Response:
        found = await visit.client.runs(pipeline=longform.name, before=_before(visit), limit=SHOWN)
        rows = [await overview_of(visit.client, run) for run in found]
        if form is None and ("new" in visit.asked or not rows):
            form = forms.empty_order(found[0].tenant if found else "principal")
        return visit.show(
            "videos.html",
            status,
            rows=rows,
            next=found[-1].id if len(found) == SHOWN else None,
            form=form,
            key=str(uuid4()),
            looks_of=STAGES,
            link_of=link_of,
            channels=await self._common.channels(visit.client) if form else [],
            **await self._common.values(visit),
        )

    async def order(self, visit: Visit) -> Response:
        """A form that is sent twice orders one video."""
        given = forms.written(visit.fields, ORDER)
        try:
            order = forms.read_order(given, Words(visit.language))
            key = visit.fields.get("key", "")[:100] or None
            await ordered(visit.client, order, key=key and f"page {key}")
        except Wrong as error:
            return await self.show(visit, 422, Form(given, error.found))
        except TooLate as error:
            return await self.show(visit, 422, Form(given, {error.field: Words(visit.language)(error.word)}))
        except InvalidInput as error:
            return await self.show(visit, 422, replace(Form(given), wrong={"channel": str(error)}))
        return visit.go(ROUTE, "ordered")


def link_of(upload: Mapping[str, Any]) -> str | None:
    """Only what is a page of ours, or of a channel: what a provider says is no more than text."""
    url = str(upload.get("url", ""))
    return url if url.startswith(("https://", f"{ROUTE}channel/")) else None


def _before(visit: Visit) -> UUID | None:
    try:
        return UUID(visit.asked.get("before", ""))
    except ValueError:
        return None


async def _to_all(visit: Visit) -> Response:
    return visit.go(ROUTE)
