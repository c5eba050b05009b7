"""What applications need to name the only provider of a capability."""

from retoma.define.provider_chain import SingleProvider

__all__ = ["SingleProvider"]
