"""Local servers that speak the wire formats of paid services, for tests and trials without an account."""
