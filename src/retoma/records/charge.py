"""Charges and prices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field


@dataclass(frozen=True)
class Charge:
    """Usage that one attempt reported."""

    id: UUID
    run: UUID
    step: str
    item: str
    revision: int
    attempt: int
    at: datetime
    provider: str
    resource: Annotated[str, Field(description="For example a model, a voice or a machine type.")]
    tokens_in: int
    tokens_out: int
    units: float
    micros: Annotated[int | None, Field(description="In millionths of a US dollar. Null if there is no price.")]
    price: Annotated[
        int | None,
        Field(description="The version of the price. Null if the provider reported the cost or there is no price."),
    ]


@dataclass(frozen=True)
class ChargeTotal:
    """Sums of charges, with the fields that they are grouped by."""

    tenant: str | None
    run: UUID | None
    step: str | None
    item: str | None
    provider: str | None
    resource: str | None
    charges: int
    tokens_in: int
    tokens_out: int
    units: float
    micros: Annotated[int, Field(description="In millionths of a US dollar.")]
    unpriced: Annotated[int, Field(description="The number of charges without a price, which the sum excludes.")]
    day: Annotated[date | None, Field(description="The day of the charges, in UTC.")] = None


@dataclass(frozen=True)
class Price:
    """A provider's price in millionths of a US dollar: per million tokens, and per unit."""

    provider: str
    resource: str
    version: int
    since: datetime
    tokens_in: int
    tokens_out: int
    unit: int
