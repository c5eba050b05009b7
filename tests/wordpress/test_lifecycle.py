"""Activation creates the tables, an upgrade keeps their rows, and deleting the plugin leaves nothing of it behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.wordpress.articles import make_image, make_publication, new_key
from tests.wordpress.dashboard import Dashboard
from tests.wordpress.posts import read_post
from tests.wordpress.site import PLUGIN, Sites, WordPress

ACTIVATE = "return activate_plugin( $plugin, '', $network );"
DESCRIBE_TABLES = """
$found = array();
foreach ( $wpdb->get_col( "SHOW TABLES LIKE '%autowriter%'" ) as $table ) {
	$created = $wpdb->get_results( "SHOW CREATE TABLE $table", ARRAY_N );
	$found[ substr( $table, strlen( $wpdb->base_prefix ) ) ] = $created[0][1];
}
return $found;
"""
LIST_LEFT = """
$left  = $wpdb->get_col( "SHOW TABLES LIKE '%autowriter%'" );
$sites = is_multisite() ? get_sites( array( 'fields' => 'ids' ) ) : array( 1 );
$names = is_multisite() ? $wpdb->get_col( "SELECT meta_key FROM $wpdb->sitemeta" ) : array();
foreach ( $sites as $id ) {
	is_multisite() && switch_to_blog( $id );
	$options = $wpdb->get_results( "SELECT option_name, option_value FROM $wpdb->options", OBJECT_K );
	unset( $options['active_plugins'], $options['recently_activated'] );
	foreach ( $options as $name => $option ) {
		if ( false !== strpos( $name . $option->option_value, 'autowriter' ) ) {
			$left[] = "$id: $name";
		}
	}
	$names = array_merge( $names, $wpdb->get_col( "SELECT meta_key FROM $wpdb->postmeta" ) );
	is_multisite() && restore_current_blog();
}
return array_merge( $left, array_values( preg_grep( '/autowriter/', $names ) ) );
"""
# The tables of version 1 of the schema had no notes and no drafts, and there were no nonces.
VERSION_1 = """
$jobs = "{$wpdb->base_prefix}autowriter_jobs";
$wpdb->query( "ALTER TABLE $jobs DROP COLUMN note, DROP COLUMN drafts, DROP KEY jobs_of_site" );
$wpdb->query( "DROP TABLE {$wpdb->base_prefix}autowriter_nonces" );
update_site_option( 'autowriter_schema_version', 1 );
"""


@pytest.fixture(params=["bare_site", "bare_network"])
def bare(request: pytest.FixtureRequest, wordpress_sites: Sites) -> Iterator[WordPress]:
    """A site, and a network, without the plugin."""
    source: WordPress = getattr(wordpress_sites, request.param)
    with source.clone() as cloned:
        yield cloned


def activate(site: WordPress) -> None:
    assert site.run_php(ACTIVATE, plugin=PLUGIN, network=bool(site.network)) is None


def describe_tables(site: WordPress) -> dict[str, str]:
    found: dict[str, str] = site.run_php(DESCRIBE_TABLES)
    return found


def test_activation_creates_the_tables(bare: WordPress) -> None:
    assert describe_tables(bare) == []  # type: ignore[comparison-overlap]  # PHP's empty array
    activate(bare)
    tables = describe_tables(bare)
    assert sorted(tables) == ["autowriter_events", "autowriter_jobs", "autowriter_nonces"]
    assert "UNIQUE KEY `idempotency_key` (`idempotency_key`)" in tables["autowriter_jobs"]


def test_activating_again_keeps_jobs_and_secrets(own_site: WordPress) -> None:
    publication = make_publication()
    Dashboard(own_site).publish(publication)
    own_site.run_php("deactivate_plugins( $plugin );", plugin=PLUGIN)
    activate(own_site)
    assert Dashboard(own_site).get_job(publication["idempotency_key"]).json()["status"] == "done"


@pytest.mark.parametrize("kind", ["own_site", "own_network"])
def test_deactivation_stops_the_deliveries(request: pytest.FixtureRequest, kind: str) -> None:
    site: WordPress = request.getfixturevalue(kind)
    code = "return false !== strpos( wp_json_encode( _get_cron_array() ), 'autowriter' );"
    for path in site.credentials:
        Dashboard(site, path).publish()
        assert site.run_php(code, path=path) is True
    site.run_php("deactivate_plugins( $plugin );", plugin=PLUGIN)
    for path in site.credentials:
        assert site.run_php(code, path=path) is False


def test_an_upgrade_of_the_tables_keeps_their_rows(own_site: WordPress) -> None:
    dashboard, key = Dashboard(own_site), new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    expected = describe_tables(own_site)
    own_site.run_php(VERSION_1)
    assert describe_tables(own_site) != expected
    status = dashboard.get_job(key).json()
    assert (status["status"], status["post_id"], status["note"]) == ("done", post_id, None)
    assert _list_columns(describe_tables(own_site)) == _list_columns(expected)
    assert own_site.run_php("return get_site_option( 'autowriter_schema_version' );") in (2, "2")
    assert dashboard.publish(make_publication(key, revision=2)).json()["post_id"] == post_id


def test_tables_that_are_current_are_left_alone(own_site: WordPress) -> None:
    code = "$before = $wpdb->num_queries; AutoWriter\\upgrade_schema(); return $wpdb->num_queries - $before;"
    assert own_site.run_php(code) == 0


@pytest.mark.parametrize("kind", ["own_site", "own_network"])
def test_deleting_the_plugin_leaves_nothing_but_content(request: pytest.FixtureRequest, kind: str) -> None:
    site: WordPress = request.getfixturevalue(kind)
    published = []
    for path in site.credentials:
        dashboard, image = Dashboard(site, path), make_image(new_key(), "featured")
        answer = dashboard.publish(make_publication(images=[image])).json()
        published.append((path, answer["post_id"]))
        dashboard.publish(make_publication(key := new_key()))
        dashboard.mark(key, "Fora do tema")
        site.run_php(
            "update_option( 'autowriter_dashboard_url', 'x' ); set_transient( 'autowriter_x', 'x' );", path=path
        )
    assert site.run_php(LIST_LEFT) != []
    site.run_php("deactivate_plugins( $plugin );", plugin=PLUGIN)
    site.run_php("uninstall_plugin( $plugin );", plugin=PLUGIN)
    assert site.run_php(LIST_LEFT) == []
    for path, post_id in published:
        post: dict[str, Any] = read_post(site, post_id, path)
        assert post["status"] == "draft"
        assert post["thumbnail"] > 0
        assert post["meta"]["_yoast_wpseo_title"] == "Guia do chá"


def _list_columns(tables: dict[str, str]) -> dict[str, list[str]]:
    """The order of columns and the counters of rows may differ."""
    return {name: sorted(line.strip().rstrip(",") for line in text.splitlines()[1:-1]) for name, text in tables.items()}
