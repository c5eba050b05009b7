"""Articles to publish, in the plugin's wire format."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any
from uuid import uuid4


def new_key() -> str:
    return uuid4().hex + uuid4().hex


def make_publication(key: str | None = None, *, revision: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a body of `POST /jobs`. `changes` are members of the article, or of the body if it has them."""
    key = key or new_key()
    body: dict[str, Any] = {
        "idempotency_key": key,
        "job_id": f"job-{key[:8]}",
        "revision": revision,
        "blog_id": None,
        "force": False,
    }
    outer = {name: value for name, value in changes.items() if name in body}
    inner = {name: value for name, value in changes.items() if name not in body}
    return {**body, **outer, "article": {**make_article(key), **inner}}


def make_article(key: str) -> dict[str, Any]:
    return {
        "title": f"Chá & café: o guia {key[:6]}",
        "slug": f"cha-e-cafe-{key[:8]}",
        "content": f"<h2>História</h2><p>O chá chegou em {key[:4]}.</p>",
        "excerpt": "Um guia curto.",
        "language": "pt-BR",
        "categories": ["Bebidas"],
        "tags": ["chá", "café"],
        "seo": {"title": "Guia do chá", "description": "Tudo sobre chá.", "focus_keyword": "chá"},
        "images": [],
    }


def make_image(key: str, kind: str = "inline", **changes: Any) -> dict[str, Any]:
    return {
        "key": key,
        "type": kind,
        "filename": f"{key}.png",
        "mime": "image/png",
        "alt": f"Uma xícara ({key})",
        "data": base64.b64encode(make_png()).decode(),
        **changes,
    }


def make_placeholder(key: str) -> str:
    return f"<!-- autowriter:image {key} -->"


def make_png(width: int = 32, height: int = 24, noise: bytes = b"") -> bytes:
    """Return a picture of one colour. `noise` is added as a comment, which makes the file as large as needed."""
    rows = (b"\0" + b"\x30\x90\x60" * width) * height
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"tEXt", b"Comment\0" + noise),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
