"""The WordPress of these tests is a real one: a single site, and a network of three sites."""

from __future__ import annotations

import httpx2

from tests.wordpress.site import PLUGIN, WordPress


def test_a_single_site_serves_the_plugin(site: WordPress) -> None:
    answer = httpx2.get(f"{site.address}/wp-json/", timeout=60).json()
    assert (answer["name"], answer["url"]) == ("Casa &amp; Jardim", site.address)
    assert site.run_php("return is_plugin_active( $plugin );", plugin=PLUGIN)


def test_a_network_serves_three_sites_with_the_plugin(network: WordPress) -> None:
    names = [
        httpx2.get(f"{network.address}{path}wp-json/", timeout=60).json()["name"]
        for path in ("/", "/viagens/", "/receitas/")
    ]
    assert names == ["Casa &amp; Jardim", "Viagens", "Receitas"]
    assert network.run_php("return is_plugin_active_for_network( $plugin );", plugin=PLUGIN)


def test_a_site_of_a_test_has_a_database_of_its_own(site: WordPress, own_site: WordPress) -> None:
    own_site.run_php("update_option( 'blogname', 'Other' );")
    assert httpx2.get(f"{own_site.address}/wp-json/", timeout=60).json()["name"] == "Other"
    assert site.run_php("return get_option( 'blogname' );") == "Casa &amp; Jardim"
