"""What `retoma doctor` says about connections: which are missing, and which cannot be decrypted here."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dotenv import dotenv_values

from retoma.app import App
from retoma.checks import Finding, Level
from retoma.define.connections import ConnectionType
from retoma.encryption import Keyring
from retoma.errors import ConnectionKeyMissing
from retoma.masking import DOTENV
from retoma.records import Connection
from retoma.settings import Settings
from retoma.store import connections, migrate
from retoma.store.database import Database

MAX_TENANTS = 5  # that are named


async def check_connections(database: Database, settings: Settings, loaded: Sequence[App]) -> list[Finding]:
    async with database.connection() as connection:
        if not (await migrate.get_status(connection)).is_current:
            return []
    known = await connections.list_connections(database, None, with_shared=True)
    missing = [_check_application(app, known) for app in loaded if app.connections]
    return [*missing, *(await _check_keys(database, settings) if known else [])]


def _check_application(app: App, known: Sequence[Connection]) -> Finding:
    """List the services that neither a connection for all tenants nor the environment configures."""
    shared = {each.service for each in known if each.tenant is None}
    lacking = [each for each in app.connections if each.service not in shared and not _is_in_environment(each)]
    if not lacking:
        return Finding("ok", f"connections of {app.name}", "each service has a connection, or variables that are set")
    by_tenants: dict[str, list[str]] = {}
    for kind in lacking:
        tenants = sorted({each.tenant for each in known if each.service == kind.service and each.tenant is not None})
        by_tenants.setdefault(_name_tenants(tenants), []).append(f"{kind.service} ({', '.join(kind.variables)})")
    message = "; ".join(f"{where}: {', '.join(services)}" for where, services in sorted(by_tenants.items()))
    advice = "enter one with `retoma connections set SERVICE` or on the page /connections, or set the variables"
    level: Level = "warning" if any(each.is_required for each in lacking) else "ok"
    return Finding(level, f"connections of {app.name}", message, advice)


def _name_tenants(tenants: Sequence[str]) -> str:
    """Say for whom a service is there, of which some tenants have a connection, or none."""
    if not tenants:
        return "missing"
    rest = f" and {len(tenants) - MAX_TENANTS} more" if len(tenants) > MAX_TENANTS else ""
    return f"only for the tenant{'s' * (len(tenants) > 1)} {', '.join(tenants[:MAX_TENANTS])}{rest}"


def _is_in_environment(kind: ConnectionType) -> bool:
    """Also as a file (`..._FILE`). The tokens of accounts have variables of their own, so one of them is enough."""
    present = {name for name, value in {**dotenv_values(DOTENV), **os.environ}.items() if value}
    return all(any(each in present for each in (name, f"{name}_FILE")) for name in kind.variables)


async def _check_keys(database: Database, settings: Settings) -> list[Finding]:
    keyring, found = Keyring.from_settings(settings), []
    try:
        others = await connections.list_with_other_keys(database, keyring.current_id, 1_000)
        for each in await connections.list_with_other_keys(database, "", 1_000):
            each.decrypt(keyring)
    except ConnectionKeyMissing as error:
        return [Finding("problem", "connections", str(error))]
    if others:
        message = f"{len(others)} are encrypted with an older key"
        found.append(Finding("warning", "connections", message, "retoma connections rotate"))
    return found
