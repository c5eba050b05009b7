"""Clients of outside services, each with an offline twin."""
