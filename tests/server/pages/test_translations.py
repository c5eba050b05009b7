"""Every string of the pages and the terminal is translated, and an application brings its own catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma.server.pages.badges import get_state_name
from retoma.states import JobState, RunState
from retoma.translations import CATALOGUES, N_, NP_, Translator
from tests.server.pages.catalogues import write_catalogue
from tools.translations import DOMAINS, Domain, list_problems, update


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_every_string_is_translated_and_none_is_left_over(domain: Domain) -> None:
    assert list(list_problems(domain)) == []


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_strings_are_found_in_code_and_in_templates(domain: Domain) -> None:
    files = {Path(file).suffix for message in domain.extract() for file, _ in message.locations}
    has_templates = any(domain.folder.rglob("templates/*.html"))
    assert files == ({".py", ".html"} if has_templates else {".py"})


def test_a_missing_translation_an_old_one_and_a_changed_placeholder_are_named(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text('_("New"); _("%(count)s files"); ngettext("one", "%(count)s many", 2)')
    domain = Domain("own", tmp_path)
    write_catalogue(tmp_path / "locale", {"Old": "Velho", "%(count)s files": "%(number)s arquivos"})
    assert [problem.partition(": ")[2] for problem in list_problems(domain)] == [
        "'New' is not translated",
        "the translation of '%(count)s files' has other placeholders: '%(number)s arquivos'",
        "('one', '%(count)s many') is not translated",
        "'Old' is translated but not used",
    ]


def test_a_missing_catalogue_is_created(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text('_("New")')
    domain = Domain("own", tmp_path)
    update(domain)
    assert domain.file.exists()
    assert [problem.partition(": ")[2] for problem in list_problems(domain)] == ["'New' is not translated"]


def test_an_applications_catalogue_wins_and_the_rest_comes_from_retoma(tmp_path: Path) -> None:
    write_catalogue(tmp_path, {"Runs": "Corridas", "Shelf": "Estante"})
    translator = Translator("pt", [tmp_path, CATALOGUES])
    assert [translator.gettext(text) for text in ("Runs", "Shelf", "Reviews", "Nobody translates this")] == [
        "Corridas",
        "Estante",
        "Revisões",
        "Nobody translates this",
    ]
    assert Translator("en", [tmp_path, CATALOGUES]).gettext("Shelf") == "Shelf"


def test_a_context_tells_words_apart_and_a_number_chooses_the_plural() -> None:
    translator = Translator("pt")
    assert translator.translate(NP_("state", "Open")) == "Aberta"
    assert translator.translate(NP_("action", "Open")) == "Abrir"
    assert translator.translate(N_("Runs")) == "Execuções"
    shown = [translator.ngettext("%(count)s dead letter", "%(count)s dead letters", n, count=n) for n in (1, 2)]
    assert shown == ["1 mensagem morta", "2 mensagens mortas"]


def test_values_are_text_unless_they_are_html() -> None:
    class Html(str):
        def __html__(self) -> str:
            return str(self)

    translator = Translator("en")
    assert translator.gettext("%(by)s approved", by="<b>") == "<b> approved"
    assert translator.gettext("<i> %(by)s %(at)s", by="<b>", at=Html("<time>")) == "&lt;i&gt; &lt;b&gt; <time>"


def test_a_cancelled_job_and_a_cancelled_run_have_their_own_gender() -> None:
    translator = Translator("pt")
    states = (RunState.CANCELLED, JobState.CANCELLED, JobState.FAILED)
    assert [translator.translate(get_state_name(state)) for state in states] == ["Cancelada", "Cancelado", "Falhou"]
