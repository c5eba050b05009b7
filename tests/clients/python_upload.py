"""Runs beside a client that openapi-python-client generated: upload a document."""

from __future__ import annotations

import io
import json
import sys

from generated import AuthenticatedClient  # type: ignore[import-not-found]
from generated.api.classificador import upload_document  # type: ignore[import-not-found]
from generated.models import UploadList  # type: ignore[import-not-found]
from generated.types import File  # type: ignore[import-not-found]

address, key = sys.argv[1:]
client = AuthenticatedClient(base_url=address, token=key, prefix="", auth_header_name="X-API-Key")
body = File(payload=io.BytesIO(b"An invoice for paper."), file_name="invoice.txt", mime_type="text/plain")
uploaded = upload_document.sync(client=client, body=body, nome="invoice.txt")
assert isinstance(uploaded, UploadList)
print(json.dumps(uploaded.to_dict()))
