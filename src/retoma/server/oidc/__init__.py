"""Single sign-on by OpenID Connect: the provider's protocol, and what its claims mean here.

`provider` needs Authlib, which the extra `oidc` installs. Import it only if single sign-on is configured.
"""

from retoma.server.oidc.claims import Identity, map_roles, parse_role_mapping
from retoma.server.oidc.failure import SignOnFailed, SignOnFailure

__all__ = ["Identity", "SignOnFailed", "SignOnFailure", "map_roles", "parse_role_mapping"]
