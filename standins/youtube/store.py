"""The stand-in's data: open sessions and finished videos."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any


@dataclass
class Session:
    id: str
    resource: dict[str, Any]
    size: int
    content: bytearray = field(default_factory=bytearray)
    video: Video | None = None


@dataclass
class Video:
    id: str
    resource: dict[str, Any]
    content: bytes
    taken_at: datetime
    thumbnail: bytes | None = None
    failure: str = ""
    rejection: str = ""
    captions: dict[str, str] = field(default_factory=dict)
    """WebVTT by language."""

    def to_resource(self, now: datetime, processing: timedelta) -> dict[str, Any]:
        """Return the resource of videos.list."""
        given = dict(self.resource.get("status", {}))
        if "publishAt" in given and datetime.fromisoformat(given["publishAt"]) <= now:
            given["privacyStatus"] = "public"
        status = given | {"uploadStatus": self._upload_status(now, processing)}
        reasons = {"failureReason": self.failure, "rejectionReason": self.rejection}
        status |= {name: value for name, value in reasons.items() if value}
        return {"kind": "youtube#video", "id": self.id, "snippet": self.resource.get("snippet", {}), "status": status}

    def summarise(self) -> dict[str, Any]:
        """Return the values that tests compare."""
        thumbnail = None if self.thumbnail is None else len(self.thumbnail)
        digest = sha256(self.content).hexdigest()
        return {
            "id": self.id,
            "size": len(self.content),
            "sha256": digest,
            "thumbnail": thumbnail,
            "captions": self.captions,
        } | (self.resource)

    def _upload_status(self, now: datetime, processing: timedelta) -> str:
        if self.failure or self.rejection:
            return "failed" if self.failure else "rejected"
        return "processed" if now >= self.taken_at + processing else "uploaded"
