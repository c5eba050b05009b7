"""Generate documents byte by byte: Portuguese pages as PDF and docx, and damaged or hostile ones."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from hashlib import md5
from random import Random

LABELS = ("petição inicial", "contestação", "sentença", "ofício", "parecer", "procuração")
_PAD = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")

_OPENINGS = {
    "petição inicial": "EXCELENTÍSSIMO SENHOR JUIZ DE DIREITO. {name}, brasileiro, vem propor a presente ação.",
    "contestação": "{name}, já qualificado nos autos, vem apresentar CONTESTAÇÃO aos pedidos do autor.",
    "sentença": "SENTENÇA. Vistos os autos em que litiga {name}. Passo a decidir.",
    "ofício": "OFÍCIO. Ao Senhor Secretário. Encaminho a Vossa Senhoria o expediente de {name}.",
    "parecer": "PARECER. Consulta formulada por {name} sobre a legalidade do contrato.",
    "procuração": "PROCURAÇÃO. Outorgante: {name}, que nomeia seu bastante procurador.",
}
_SENTENCES = {
    "petição inicial": (
        "Requer a citação do réu e a procedência da ação.",
        "Dá-se à causa o valor de R$ {number}.000,00.",
        "Protesta provar o alegado por todos os meios de prova.",
        "Dos fatos: o autor adquiriu o imóvel em {year}.",
    ),
    "contestação": (
        "Preliminarmente, argui a ilegitimidade passiva.",
        "No mérito, os pedidos do autor são improcedentes.",
        "O réu impugna o valor de R$ {number}.000,00.",
        "Requer a condenação do autor em honorários.",
    ),
    "sentença": (
        "Julgo procedente o pedido, com resolução do mérito.",
        "Condeno o réu ao pagamento de R$ {number}.000,00.",
        "Publique-se. Registre-se. Intimem-se.",
        "Após o trânsito em julgado, arquivem-se os autos de {year}.",
    ),
    "ofício": (
        "Solicito providências no prazo de {number} dias.",
        "Reitero os termos do expediente de {year}.",
        "Aproveito para renovar protestos de consideração.",
        "Atenciosamente, a Diretoria de Gabinete.",
    ),
    "parecer": (
        "Opina-se pela regularidade do procedimento licitatório.",
        "A Lei nº 14.133 rege a matéria desde {year}.",
        "É o parecer, salvo melhor juízo.",
        "Conclui-se pela possibilidade jurídica da contratação.",
    ),
    "procuração": (
        "Confere poderes para o foro em geral, com a cláusula ad judicia.",
        "Poderes para transigir, desistir, receber e dar quitação.",
        "A presente procuração é válida até {year}.",
        "Podendo substabelecer, com ou sem reserva de poderes.",
    ),
}
_COMMON = (
    "Campo Grande, {number} de março de {year}.",
    "Processo nº 08{number}-15.{year}.8.12.0001.",
    "Interessado: {name}.",
    "Nada mais havendo, firma o presente.",
)
_NAMES = ("João Conceição", "Maria Assunção", "Antônio Peçanha", "Luísa Guimarães", "Inês Brandão", "Estêvão Araújo")


def text_of(label: str, number: int) -> list[str]:
    """Return the lines of a document of this kind, the same for the same number."""
    random = Random(f"{label}:{number}")
    lines = [
        _OPENINGS[label],
        *random.sample(_SENTENCES[label], 3),
        *random.sample(_COMMON, 3),
    ]
    facts = {"name": random.choice(_NAMES), "number": random.randint(10, 99), "year": random.randint(1998, 2026)}
    return [line.format(**facts) for line in lines]


def letter(number: int) -> tuple[str, bytes]:
    """Return a label, and a one-page PDF of that kind."""
    label = LABELS[number % len(LABELS)]
    return label, pdf([text_of(label, number)])


def pdf(pages: Sequence[Sequence[str]], *, password: str | None = None) -> bytes:
    """Return a PDF with these lines of text, encrypted if there is a password."""
    return _written([_text_page(lines) for lines in pages], password=password)


def blank_pdf() -> bytes:
    return _written([b""])


def scanned_pdf(pages: int = 1) -> bytes:
    """Return pages with a picture and no text."""
    picture = _stream(
        zlib.compress(b"\xff\x00" * 32),
        "/Type /XObject /Subtype /Image /Width 8 /Height 8 "
        "/ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /FlateDecode",
    )
    return _written(
        [b"q 400 0 0 400 80 200 cm /Im Do Q"] * pages, extra=[picture], resources="/XObject << /Im 4 0 R >>"
    )


def memory_exhausting_pdf(megabytes: int = 900) -> bytes:
    """Return a small PDF whose page unpacks to very many bytes: one packed block, repeated."""
    packer = zlib.compressobj(9)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * 1_000_000) + packer.flush(zlib.Z_FULL_FLUSH)
    return _written([], streams=[_stream(head + block * megabytes, "/Filter /FlateDecode")])


def hanging_pdf() -> bytes:
    """Return a page that draws the same empty form very often: hours of work, and little memory."""
    entries = "/Type /XObject /Subtype /Form /BBox [0 0 600 800] /Filter /FlateDecode"
    form = _stream(zlib.compress(b"q Q " * 200_000), entries)
    page = _stream(zlib.compress(b"/Fm Do " * 100_000), "/Filter /FlateDecode")
    return _written([], streams=[page], extra=[form], resources="/XObject << /Fm 4 0 R >>")


def corrupt_pdfs() -> dict[str, bytes]:
    """Return PDFs that no reader can open."""
    whole = pdf([text_of("ofício", 1)])
    return {
        "only a head": b"%PDF-1.7\n",
        "cut after 200 bytes": whole[:200],
        "zeros after the head": whole[:9] + b"\0" * (len(whole) - 9),
        "noise after the head": whole[:9] + Random(7).randbytes(len(whole)),
        "no catalogue": whole.replace(b"/Type /Catalog", b"/Type /Catalan").replace(b"/Pages 2", b"/Pagez 2"),
        "pages within themselves": re.sub(rb"/Kids \[.*?\]", b"/Kids [2 0 R]", whole),
    }


def docx(paragraphs: Sequence[str], **changed: bytes) -> bytes:
    """Return a docx as word processors write it. `changed` replaces the bytes of `document`."""
    body = "".join(f'<w:p><w:r><w:t xml:space="preserve">{_escaped(text)}</w:t></w:r></w:p>' for text in paragraphs)
    return zipped(
        {
            "[Content_Types].xml": b'<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/'
            b'content-types"/>',
            "word/document.xml": changed.get("document", document_xml(body)),
        }
    )


def document_xml(body: str) -> bytes:
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    whole = f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>'
    return f'<?xml version="1.0" encoding="UTF-8"?>{whole}'.encode()


def entity_bomb_docx() -> bytes:
    """Return nested entities that would expand to gigabytes."""
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return docx([], document=f'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY l0 "ha">{levels}]><w>&l9;</w>'.encode())


def external_entity_docx() -> bytes:
    """Return an entity that names a file on this machine."""
    return docx([], document=b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/hostname">]><w>&x;</w>')


def bomb_docx(megabytes: int = 60) -> bytes:
    """Return a document whose text is only spaces."""
    return docx([], document=b"<w>" + b" " * (megabytes * 1_000_000) + b"</w>")


def zipped(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


def false_size_zip(members: dict[str, bytes], claimed: int = 10) -> bytes:
    """Return a zip that declares only a few bytes for each member."""
    made = bytearray(zipped(members))
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        for member in archive.infolist():
            struct.pack_into("<I", made, member.header_offset + 22, claimed)
    place = made.find(b"PK\x01\x02")
    while place >= 0:
        struct.pack_into("<I", made, place + 24, claimed)
        place = made.find(b"PK\x01\x02", place + 4)
    return bytes(made)


def locked_zip(members: dict[str, bytes]) -> bytes:
    """Return a zip whose members claim to be encrypted."""
    made = bytearray(zipped(members))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = made.find(mark)
        while place >= 0:
            made[place + offset] |= 1
            place = made.find(mark, place + 4)
    return bytes(made)


def png(width: int = 8, height: int = 8) -> bytes:
    """Return a white picture; a large one still has few bytes."""
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    packer, packed, row = zlib.compressobj(9), io.BytesIO(), b"\0" + b"\xff" * ((width + 7) // 8)
    for _ in range(height):
        packed.write(packer.compress(row))
    packed.write(packer.flush())
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", packed.getvalue()) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _text_page(lines: Sequence[str]) -> bytes:
    drawn = b"".join(b"(" + _literal(line) + b") Tj T*\n" for line in lines)
    return b"BT /F 11 Tf 14 TL 60 780 Td\n" + drawn + b"ET"


def _literal(line: str) -> bytes:
    """Encode as Windows-1252, the encoding of the font on these pages."""
    raw = line.encode("cp1252")
    return raw.replace(b"\\", rb"\\").replace(b"(", rb"\(").replace(b")", rb"\)")


def _written(
    pages: Sequence[bytes],
    *,
    streams: Sequence[bytes] = (),
    extra: Sequence[bytes] = (),
    resources: str = "",
    password: str | None = None,
) -> bytes:
    """Write objects 1 to 3, the catalogue, page list and font; then `extra`, then each page and its stream."""
    contents = [*(_stream(page) for page in pages), *streams]
    first = 4 + len(extra)
    kids = " ".join(f"{first + 2 * place} 0 R" for place in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        *extra,
    ]
    for place, content in enumerate(contents):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {first + 2 * place + 1} 0 R "
            f"/Resources << /Font << /F 3 0 R >> {resources} >> >>".encode()
        )
        objects.append(content)
    return _file(objects, password)


def _stream(body: bytes, entries: str = "") -> bytes:
    return f"<< /Length {len(body)} {entries} >>\nstream\n".encode() + body + b"\nendstream"


def _file(objects: list[bytes], password: str | None) -> bytes:
    trailer = b""
    if password is not None:
        objects, trailer = _locked(objects, password.encode())
    made, places = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(made)
    made += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    made += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    made += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R ".encode() + trailer + b">>\n"
    return bytes(made + f"startxref\n{start}\n%%EOF\n".encode())


def _locked(objects: list[bytes], password: bytes) -> tuple[list[bytes], bytes]:
    """Encrypt a PDF with 40-bit RC4, the oldest and weakest method, which every reader supports."""
    identity, rights = b"0123456789abcdef", -4
    padded = (password + _PAD)[:32]
    owner = _rc4(md5(padded).digest()[:5], padded)
    key = md5(padded + owner + struct.pack("<i", rights) + identity).digest()[:5]
    lock = f"<< /Filter /Standard /V 1 /R 2 /P {rights} /O <{owner.hex()}> /U <{_rc4(key, _PAD).hex()}> >>"
    sealed = [_sealed(body, key, number) for number, body in enumerate(objects, 1)]
    sealed.append(lock.encode())
    return sealed, f"/Encrypt {len(sealed)} 0 R /ID [<{identity.hex()}> <{identity.hex()}>] ".encode()


def _sealed(body: bytes, key: bytes, number: int) -> bytes:
    head, mark, rest = body.partition(b"\nstream\n")
    if not mark:
        return body
    own = md5(key + struct.pack("<I", number)[:3] + b"\0\0").digest()[:10]
    return head + mark + _rc4(own, rest.removesuffix(b"\nendstream")) + b"\nendstream"


def _rc4(key: bytes, data: bytes) -> bytes:
    box, other, made = list(range(256)), 0, bytearray()
    for place in range(256):
        other = (other + box[place] + key[place % len(key)]) % 256
        box[place], box[other] = box[other], box[place]
    place = other = 0
    for byte in data:
        place = (place + 1) % 256
        other = (other + box[place]) % 256
        box[place], box[other] = box[other], box[place]
        made.append(byte ^ box[(box[place] + box[other]) % 256])
    return bytes(made)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
