"""What applications need to declare schedules."""

from retoma.define.schedule import Schedule
from retoma.records import CatchUp, Overlap

__all__ = ["CatchUp", "Overlap", "Schedule"]
