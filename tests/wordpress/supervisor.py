"""Run the WordPress that all tests of a session share, until nobody uses it.

    python -m tests.wordpress.supervisor FOLDER

The command ends when the sites are ready, with exit code 1 if they are not; the supervisor continues in the background.
`FOLDER/ready.json` then says where the sites are. Each process of tests holds a shared lock on `FOLDER/users`. The
supervisor waits for an exclusive one: it gets it when the last of them has ended, even if that one was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from tests.wordpress.programs import SOURCE, run_database
from tests.wordpress.site import PHP, PLUGIN, Sites, WordPress

PLUGIN_SOURCE = Path(__file__).resolve().parents[2] / "wordpress" / "autowriter"
COPIED = {
    "wp-config.php": ".",
    "router.php": ".",
    "must-use.php": "wp-content/mu-plugins",
    "evaluate.php": "wp-content/mu-plugins/tests",
}
PATHS = ["/", "/viagens/", "/receitas/"]
CREATE_SITES = """
foreach ( array( 'viagens', 'receitas' ) as $name ) {
	wpmu_create_blog( '127.0.0.1', "/$name/", ucfirst( $name ), 1, array( 'public' => 1 ), 1 );
}
foreach ( get_sites() as $site ) {
	switch_to_blog( $site->blog_id );
	update_option( 'permalink_structure', '/%postname%/' );
	flush_rewrite_rules();
	restore_current_blog();
}
return count( get_sites() );
"""
ACTIVATE = """
$result = activate_plugin( $plugin, '', $network );
return is_wp_error( $result ) ? $result->get_error_message() : '';
"""
CONNECT = """
update_option( 'autowriter_requests_per_minute', 1000000 );
return AutoWriter\\create_secret();
"""
REMOVE_PORT = "update wp_options set option_value = 'http://127.0.0.1' where option_name in ('home', 'siteurl')"


def main(folder: Path) -> None:
    ready, started = os.pipe()
    if os.fork():
        os.close(started)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with run_sites() as sites, announce(folder, sites) as users:
        os.write(started, b"1")
        fcntl.flock(users, fcntl.LOCK_EX)


@contextmanager
def run_sites() -> Iterator[Sites]:
    # Not in the folder of the session: the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="retoma-wordpress-"))
    try:
        with run_database(folder) as socket:
            bare_site = install_site(WordPress(copy_wordpress(folder), socket, "bare_site"))
            bare_network = install_network(bare_site)
            fresh_site = connect_sites(bare_site.copy("fresh_site"), ["/"])
            fresh_network = connect_sites(bare_network.copy("fresh_network"), PATHS)
            with fresh_site.copy("site").serve() as site, fresh_network.copy("network").serve() as network:
                yield Sites(site, network, fresh_site, fresh_network, bare_site, bare_network)
    finally:
        shutil.rmtree(folder)


@contextmanager
def announce(folder: Path, sites: Sites) -> Iterator[IO[str]]:
    """Tell where the sites are, and yield the file to lock.

    The lock ends after the announcement: a process that gets it next must not find sites that are about to stop.
    """
    ready, part = folder / "ready.json", folder / "ready.json.part"
    part.write_text(sites.to_json())
    with (folder / "users").open("a") as users:
        part.rename(ready)
        try:
            yield users
        finally:
            ready.unlink()


def copy_wordpress(folder: Path) -> Path:
    root = folder / "wordpress"
    shutil.copytree(SOURCE, root, ignore_dangling_symlinks=True, copy_function=shutil.copyfile)
    for name, where in COPIED.items():
        (root / where).mkdir(exist_ok=True)
        (root / where / name).unlink(missing_ok=True)
        shutil.copyfile(PHP / name, root / where / name)
    shutil.copytree(PLUGIN_SOURCE, root / "wp-content/plugins/autowriter")
    return root


def install_site(site: WordPress) -> WordPress:
    site.create_database()
    site.run_script("install.php")
    return site


def install_network(site: WordPress) -> WordPress:
    """Return a network of three sites, made of a copy of this one."""
    network = replace(site.copy("bare_network"), network="new")
    network.run_sql(f"use {network.database}; {REMOVE_PORT}")
    network.run_script("install-network.php")
    network = replace(network, network="installed")
    assert network.run_php(CREATE_SITES) == 3
    return network


def connect_sites(site: WordPress, paths: list[str]) -> WordPress:
    """Activate the plugin, and return the site with a secret of each of these sites."""
    problem = site.run_php(ACTIVATE, plugin=PLUGIN, network=bool(site.network))
    assert not problem, problem
    return replace(site, credentials={path: site.run_php(CONNECT, path=path) for path in paths})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
