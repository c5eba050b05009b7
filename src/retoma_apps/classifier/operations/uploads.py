"""Store uploaded files one by one, and a zip as the files in it."""

from __future__ import annotations

import asyncio
import tempfile
import unicodedata
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import BinaryIO, cast

from pydantic import BaseModel, ConfigDict

from retoma import Client, File
from retoma_apps.classifier.models import LONGEST_CODE, MOST_DOCUMENTS, Document, ExplainedRefusal, Refusal
from retoma_apps.classifier.pages.problems import explain_in_portuguese
from retoma_apps.classifier.steps.reading import Limits, Member, Unreadable, is_one_document, iterate_members
from retoma_apps.classifier.steps.reading.errors import Code
from retoma_apps.classifier.steps.reading.limits import MEGABYTE
from retoma_apps.providers.unicode_text import compose

LARGEST_UPLOAD = 2_000 * MEGABYTE
LIMITS = Limits()
ZIP_LIMITS = Limits(unpacked=LARGEST_UPLOAD, members=10_000, files=MOST_DOCUMENTS)
_ZIP = b"PK\x03\x04"
BATCH_SIZE = 16  # files stored or looked up at a time
_IN_MEMORY = 1 << 20
DEFAULT_NAME = "documento"


class Upload(BaseModel):
    """One document for a batch: its name, and its file or why it has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nome: str
    arquivo: File | None = None
    recusa: ExplainedRefusal | None = None


async def store_upload(client: Client, name: str, chunks: AsyncIterable[bytes]) -> list[Upload]:
    """Store an upload: one document, or those in a zip. A document that is too large is rejected alone.

    `tenant` is the only project that may use it; None if the caller may choose any.

    Raise Unreadable if a zip is damaged or too large as a whole.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        async for chunk in chunks:
            if spool.tell() + len(chunk) > _IN_MEMORY:
                await asyncio.to_thread(spool.write, chunk)  # to the disk
            else:
                spool.write(chunk)
        size = spool.tell()
        file = cast(BinaryIO, spool)  # compatible, but not a subclass
        if await asyncio.to_thread(_is_batch, file, name):
            return await _unpack(client, file)
        if size > LIMITS.bytes:
            detail = f"the file has {size:,} bytes, over the limit of {LIMITS.bytes:,}"
            return [Upload(nome=clean_name(name), recusa=_explain_refusal("FILE_TOO_LARGE", detail))]
        stored = await client.files.save(spool.read(), tenant=None, name=clean_name(name))
        return [Upload(nome=stored.name, arquivo=stored)]


def _is_batch(file: BinaryIO, name: str) -> bool:
    file.seek(0)
    is_zip = file.read(len(_ZIP)) == _ZIP and not name.lower().endswith(".docx")
    is_batch = is_zip and not is_one_document(file, ZIP_LIMITS)
    file.seek(0)
    return is_batch


async def _unpack(client: Client, zipped: BinaryIO) -> list[Upload]:
    found = iterate_members(zipped, ZIP_LIMITS)
    uploads: list[Upload] = []
    while some := await asyncio.to_thread(_next_members, found):
        uploads += await asyncio.gather(*(_store_member(client, member) for member in some))
    if not uploads:
        raise Unreadable("the zip contains no files", "FILE_EMPTY")
    return uploads


async def _store_member(client: Client, member: Member) -> Upload:
    name = clean_name(member.name)
    if member.error is not None:
        return Upload(nome=name, recusa=_explain_refusal(member.error.code, str(member.error)))
    return Upload(nome=name, arquivo=await client.files.save(member.data, tenant=None, name=name))


def _next_members(archive_members: Iterator[Member]) -> list[Member]:
    """Return the next few, which together take little more memory than the largest document."""
    some: list[Member] = []
    while len(some) < BATCH_SIZE and sum(len(each.data) for each in some) < LIMITS.bytes:
        if (member := next(archive_members, None)) is None:
            break
        some.append(member)
    return some


def number_documents(uploads: Iterable[Upload]) -> list[Document]:
    """Give each document a code that is unique within its batch, and mark those with the same content as an earlier
    one."""
    names = Counter[str]()
    first: dict[str, str] = {}
    found: list[Document] = []
    for upload in uploads:
        code = _unique_code(clean_name(upload.nome), names)
        same = None
        if upload.arquivo is not None and upload.arquivo.size > 0:  # empty files are not duplicates
            same = first.setdefault(upload.arquivo.file, code)
        original = None if same == code else same
        refusal = upload.recusa and Refusal(codigo=upload.recusa.codigo, detalhe=upload.recusa.detalhe)
        found.append(Document(codigo=code, arquivo=upload.arquivo, recusa=refusal, duplicado_de=original))
    return found


def _unique_code(name: str, names: Counter[str]) -> str:
    names[name] += 1
    number, code = names[name], name
    while number > 1 and names[code := _add_number(name, number)]:
        number += 1
    if code != name:
        names[code] += 1
    return code


def _add_number(name: str, number: int) -> str:
    stem, dot, ending = name.rpartition(".")
    return f"{stem} ({number}).{ending}" if dot and stem else f"{name} ({number})"


def clean_name(name: str) -> str:
    """Return a file's name as a label: short, and without invisible characters. It is never used as a path."""
    composed = compose(name.replace("\\", "/"))
    visible = "".join(each for each in composed if unicodedata.category(each)[0] != "C").strip(" /")
    parts = [part for part in visible.split("/") if part not in ("", ".", "..")]
    return _truncate_start("/".join(parts), LONGEST_CODE - 10) or DEFAULT_NAME


def _truncate_start(name: str, max_bytes: int) -> str:
    """Return the end of a name, at most `max_bytes` in JSON; the extension matters most."""
    left = max_bytes
    for at in range(len(name) - 1, -1, -1):
        left -= len(name[at].encode()) + (name[at] == '"')
        if left < 0:
            return name[at + 1 :]
    return name


def _explain_refusal(code: Code, detail: str) -> ExplainedRefusal:
    return ExplainedRefusal(codigo=code, mensagem=explain_in_portuguese(code) or detail, detalhe=detail)
