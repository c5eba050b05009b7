"""Fields that the connections of several services have."""

from __future__ import annotations

from retoma.connections import ConnectionField

API_KEY = ConnectionField("api_key", "API key", "secret")
