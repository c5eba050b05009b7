"""The providers of blogs."""

from __future__ import annotations

from pathlib import Path

from retoma.connections import TenantConnections
from retoma_apps.providers.wordpress.local import LocalBlog
from retoma_apps.providers.wordpress.port import BlogProvider, OpenBlog
from retoma_apps.providers.wordpress.wordpress import WordPress

PROVIDERS: tuple[type[BlogProvider], ...] = (WordPress, LocalBlog)
"""In order of preference."""


def configured_providers(folder: Path, connections: TenantConnections | None = None) -> list[OpenBlog]:
    """Return the configured providers, in order of preference; the last one needs no configuration."""
    found = connections or TenantConnections()
    return [provider for each in PROVIDERS if (provider := each.for_tenant(found, folder)) is not None]
