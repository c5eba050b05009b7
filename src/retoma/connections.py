"""What applications need to declare the services whose credentials people enter as connections."""

from retoma.define.connections import ConnectionField, ConnectionType, Consent, PerTenant, TenantConnections

__all__ = ["ConnectionField", "ConnectionType", "Consent", "PerTenant", "TenantConnections"]
