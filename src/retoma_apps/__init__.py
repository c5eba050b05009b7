"""The applications that ship with Retoma, and the clients of external services that they share."""
