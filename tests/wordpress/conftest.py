from tests.wordpress.fixtures import dashboard, network, own_network, own_site, site, wordpress_sites

__all__ = ["dashboard", "network", "own_network", "own_site", "site", "wordpress_sites"]
