"""The applications that ship with Retoma, and the clients of outside services that they share."""
