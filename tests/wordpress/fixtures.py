"""Fixtures for tests that publish to a real WordPress. Import them into the conftest.py of a folder that needs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wordpress.dashboard import Dashboard
from tests.wordpress.shared import attach_sites
from tests.wordpress.site import Sites, WordPress


@pytest.fixture(scope="session")
def wordpress_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with attach_sites(tmp_path_factory) as sites:
        yield sites
        complaints = [line for site in sites for line in site.list_complaints("plugins/autowriter")]
        assert complaints == []


@pytest.fixture(scope="session")
def site(wordpress_sites: Sites) -> WordPress:
    """A single site with the plugin. All tests share it, so they use keys of their own and change no settings."""
    return wordpress_sites.site


@pytest.fixture(scope="session")
def network(wordpress_sites: Sites) -> WordPress:
    """A network of three sites with the plugin: `/`, `/viagens/` and `/receitas/`. All tests share it."""
    return wordpress_sites.network


@pytest.fixture
def own_site(wordpress_sites: Sites) -> Iterator[WordPress]:
    """A single site of this test's own, with the plugin."""
    with wordpress_sites.fresh_site.clone() as cloned:
        yield cloned


@pytest.fixture
def own_network(wordpress_sites: Sites) -> Iterator[WordPress]:
    """A network of this test's own, with the plugin."""
    with wordpress_sites.fresh_network.clone() as cloned:
        yield cloned


@pytest.fixture(scope="session")
def dashboard(site: WordPress) -> Dashboard:
    """Publishes to the single site."""
    return Dashboard(site)
