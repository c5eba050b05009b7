"""Connections: credentials of outside services. Secrets are taken, and never returned."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from retoma.records import Connection, ConnectionTest
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import ConnectionList, ConnectionRequest, Name

router = APIRouter(tags=["connections"])
Administrator = Annotated[Principal, require_scope("connections:write")]
Service = Annotated[str, Path(max_length=50, description="The service, such as `openrouter`.")]
OfTenant = Annotated[Name, Path(description="The tenant; `*` for the connection for all tenants.")]
OfAccount = Annotated[
    str,
    Query(max_length=100, pattern=r"^[^\x00-\x1f]*$", description="The account, of a service with several."),
]
_PROBLEMS = document_problems(403, 404, 409)


class ConnectionFieldSchema(BaseModel):
    name: str
    title: str
    kind: Literal["secret", "text", "url", "host"]
    required: bool
    help: str


class ConnectionService(BaseModel):
    service: str
    title: str
    fields: list[ConnectionFieldSchema] = Field(description="Empty if it is configured by settings, and only tested.")
    variables: list[str] = Field(description="The environment variables that are used without a connection.")
    has_accounts: bool
    for_all_tenants: bool = Field(description="Whether no tenant can have a connection of its own.")
    has_consent: bool = Field(description="Whether the owner of an account consents on the page, in the browser.")


class ConnectionServiceList(BaseModel):
    services: list[ConnectionService]


@router.get("/connection-services", summary="List the services, and what each connection needs")
async def list_connection_services(by: Administrator) -> ConnectionServiceList:
    return ConnectionServiceList(
        services=[
            ConnectionService(
                service=kind.service,
                title=kind.title,
                fields=[ConnectionFieldSchema(**vars(field)) for field in kind.fields],
                variables=list(kind.variables),
                has_accounts=kind.has_accounts,
                for_all_tenants=kind.for_all_tenants,
                has_consent=kind.consent is not None,
            )
            for kind in by.client.connections.types.values()
        ]
    )


@router.get("/connections", summary="List connections without their secrets", responses=document_problems(403))
async def list_connections(
    by: Administrator,
    tenant: Annotated[Name | None, Query(description="Only those that this tenant can use.")] = None,
) -> ConnectionList:
    return ConnectionList(connections=list(await by.client.connections.list(tenant=tenant)))


@router.get("/connections/{tenant}/{service}", summary="Get a connection without its secrets", responses=_PROBLEMS)
async def get_connection(tenant: OfTenant, service: Service, by: Administrator, account: OfAccount = "") -> Connection:
    return await by.client.connections.get(service, tenant=tenant, account=account)


@router.put("/connections/{tenant}/{service}", summary="Enter or change a connection", responses=_PROBLEMS)
async def set_connection(
    tenant: OfTenant, service: Service, body: ConnectionRequest, by: Administrator, account: OfAccount = ""
) -> Connection:
    return await by.client.connections.set(service, body.fields, tenant=tenant, account=account)


@router.delete("/connections/{tenant}/{service}", status_code=204, summary="Delete a connection", responses=_PROBLEMS)
async def delete_connection(tenant: OfTenant, service: Service, by: Administrator, account: OfAccount = "") -> Response:
    await by.client.connections.delete(service, tenant=tenant, account=account)
    return Response(status_code=204)


@router.post("/connections/{tenant}/{service}/test", summary="Try the credentials of a connection", responses=_PROBLEMS)
async def check_connection(
    tenant: OfTenant, service: Service, by: Administrator, account: OfAccount = ""
) -> ConnectionTest:
    """Without a connection for all tenants, tries the credentials of the environment. It costs and changes nothing."""
    return await by.client.connections.test(service, tenant=tenant, account=account)
