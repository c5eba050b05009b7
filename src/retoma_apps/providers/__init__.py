"""Clients for external services, each with an offline implementation."""
