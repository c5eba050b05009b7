"""Catalogues of applications in tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po


def write_catalogue(folder: Path, translations: Mapping[str, str], name: str = "own") -> Path:
    """Write the Brazilian Portuguese catalogue of an application. Return `folder`, for `App(locale=...)`."""
    catalogue = Catalog(locale="pt_BR")
    for text, translated in translations.items():
        catalogue.add(text, translated)
    file = folder / "pt_BR" / "LC_MESSAGES" / f"{name}.po"
    file.parent.mkdir(parents=True)
    with file.open("wb") as target:
        write_po(target, catalogue)
    return folder
