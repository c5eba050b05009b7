"""The classifier's page in a real browser: from a project to labels that people have checked."""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Page, expect

from retoma.server.streams import Streams
from retoma.states import RunState
from retoma.store.database import Database
from retoma.testing import NOON
from retoma_apps.classifier.pages.messages import create_translator, describe_error_code
from tests.apps.classifier.classifier_app import EXAMPLES, TEXTS
from tests.browser.classifier_screen import UNREADABLE, ClassifierScreen, running_classifier_screen
from tests.browser.test_run import LANGUAGES
from tests.conftest import empty_database
from tests.server.pages.test_pages import EVERYTHING
from tests.server.people import ADMINISTRATOR, PASSWORD, ensure_administrator

NOTE_OPENED = """
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    this.addEventListener("open", () => { document.documentElement.dataset.opened = "yes"; });
  }
};
"""
VAGUE = "Julgo parecer ofício."


@pytest.fixture
async def classifier_screen(database: Database, tmp_path: Path) -> AsyncIterator[ClassifierScreen]:
    await empty_database(database)
    async with running_classifier_screen(database, tmp_path) as made:
        yield made
        assert made.screen.complaints == []


async def test_a_user_goes_from_a_new_project_to_an_exported_file(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with running_classifier_screen(database, tmp_path, development=False) as classifier_screen:
        await ensure_administrator(classifier_screen.client)
        page = await classifier_screen.open(language="en")
        await page.get_by_label("E-mail address").fill(ADMINISTRATOR)
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")
        await go_all_the_way(classifier_screen, page)
        assert classifier_screen.screen.complaints == []


async def go_all_the_way(classifier_screen: ClassifierScreen, page: Page) -> None:
    await page.get_by_role("link", name="New project").click()
    await page.get_by_label("Name").fill("Court papers")
    await page.get_by_label("Labels").fill("sentença: decides\nofício\nparecer: an opinion")
    await page.get_by_label("Examples").fill("\n".join(f"{each['rotulo']}: {each['texto']}" for each in EXAMPLES))
    await page.get_by_role("button", name="Create project").click()
    await expect(page.get_by_role("status").first).to_have_text("The project has been created. Now upload documents.")
    files = [make_file(name, text.encode()) for name, text in {**TEXTS, "again.txt": TEXTS["a.txt"]}.items()]
    await page.locator("[data-files]").set_input_files(files)
    await expect(page.locator("p[data-chosen]")).to_contain_text("Selected: 4")
    await page.get_by_label("Name of this batch").fill("March")
    await page.get_by_role("button", name="Upload and classify").click()
    await expect(page.get_by_role("heading", name="March")).to_be_visible()
    await expect(page.locator("#c-head .badge")).to_have_text("PENDING")
    await expect(page.get_by_text("once the execution has finished")).to_be_visible()
    await classifier_screen.work()
    await expect(page.locator("#c-head .badge")).to_have_text("DONE")
    await expect(page).to_have_title(re.compile("^DONE · March"))
    await expect(page.locator('tr[data-c="a.txt"]')).to_contain_text("sentença")
    await expect(page.locator('tr[data-c="again.txt"]')).to_contain_text("same as a.txt")
    await page.get_by_text("Export").click()
    async with page.expect_download() as caught:
        await page.get_by_role("link", name="CSV").click()
    assert '"b.txt","CONCLUIDO","ofício"' in await asyncio.to_thread(read, await (await caught.value).path())


async def test_a_folder_and_a_zip_are_uploaded_and_rejected_files_are_listed_first(
    classifier_screen: ClassifierScreen, tmp_path: Path
) -> None:
    folder = tmp_path / "março"
    (folder / "dentro").mkdir(parents=True)
    (folder / "dentro" / "a.txt").write_text(TEXTS["a.txt"])
    (folder / "b.txt").write_text(TEXTS["b.txt"])
    for left in (".DS_Store", "Thumbs.db", "dentro/._a.txt"):
        (folder / left).write_text("left")
    damaged = make_file("ruim.zip", b"PK\x03\x04 damaged")
    page = await classifier_screen.open(await classifier_screen.project())
    await page.locator("[data-folder]").set_input_files(folder)
    zipped = make_file("lote.zip", make_zip({"c.txt": TEXTS["c.txt"]}))
    await page.locator("[data-files]").set_input_files([zipped, damaged])
    await expect(page.locator("p[data-chosen]")).to_contain_text("Selecionados: 4")
    await page.route("**/arquivos?nome=lote.zip", lambda route: route.abort(), times=1)
    await page.get_by_role("button", name="Enviar e classificar").click()
    await expect(page.locator(".refused li")).to_contain_text("ruim.zip O arquivo está danificado.")
    await classifier_screen.screen.expect_complaints("422", "net::ERR")
    await page.get_by_role("button", name="Classificar o que foi enviado (3)").click()
    await expect(page.locator("tr[data-c]")).to_have_count(3)
    assert await page.locator("tr[data-c]").evaluate_all("all => all.map(row => row.dataset.c).sort()") == [
        "c.txt",
        "março/b.txt",
        "março/dentro/a.txt",
    ]


async def test_more_documents_than_fit_in_one_execution_are_reported_before_any_is_sent(
    classifier_screen: ClassifierScreen,
) -> None:
    page = await classifier_screen.open(await classifier_screen.project())
    await page.locator("[data-files]").evaluate(
        """input => { const given = new DataTransfer();
        for (let each = 0; each < 2001; each += 1) given.items.add(new File(["x"], `${each}.txt`));
        input.files = given.files; input.dispatchEvent(new Event("change")); }"""
    )
    await expect(page.locator("p[data-chosen]")).to_contain_text("2.001 arquivos passam do limite de 2.000")
    await expect(page.get_by_role("button", name="Enviar e classificar")).to_be_disabled()


@pytest.mark.parametrize(("locale", "language"), LANGUAGES)
async def test_a_stuck_execution_is_shown_and_resumed_by_its_buttons(
    classifier_screen: ClassifierScreen, locale: str, language: str
) -> None:
    translator = create_translator(language)
    execution = await classifier_screen.begin(await classifier_screen.project(), {**TEXTS, "bad.bin": UNREADABLE})
    page = await classifier_screen.open(f"execucoes/{execution}", language=locale)
    await classifier_screen.get_stuck()
    await expect(page.locator("#c-head .badge")).to_have_text(translator.pgettext("execution status", "STUCK"))
    await expect(page.locator(".stuck-banner")).to_contain_text(
        translator.gettext("a document exceeded its time limit without a heartbeat")
    )
    await expect(page.locator(".stuck-banner .proof")).to_contain_text("/classificador/")
    await expect(page.locator("#c-episodes")).to_contain_text(translator.gettext("still stuck"))
    await page.get_by_role("button", name=translator.gettext("Continue from where it stopped")).click()
    await expect(page.get_by_role("status")).to_have_text(translator.gettext("The execution has been resumed."))
    await classifier_screen.work()
    await expect(page.locator("#c-head .badge")).to_have_text(
        translator.pgettext("execution status", "DONE WITH ERRORS")
    )
    await expect(page.locator("#c-episodes")).to_contain_text(translator.gettext("resumed by %(by)s", by=""))
    await expect(page.locator("#c-errors")).to_contain_text(describe_error_code(translator, "FILE_UNSUPPORTED"))
    await page.get_by_role("button", name=translator.gettext("Rerun only errors")).click()
    await expect(page.get_by_role("status")).to_have_text(
        translator.gettext("Only the documents with errors are being rerun.")
    )
    assert (await classifier_screen.client.runs.get(execution)).revision == 2


@pytest.mark.parametrize(("locale", "language"), LANGUAGES)
async def test_a_minute_without_events_is_shown_until_a_ping_arrives(
    classifier_screen: ClassifierScreen, monkeypatch: pytest.MonkeyPatch, locale: str, language: str
) -> None:
    monkeypatch.setattr("retoma.server.streams.SECONDS_BETWEEN_SLOTS", 3600.0)  # no ping but the test's
    translator = create_translator(language)
    execution = await classifier_screen.begin(await classifier_screen.project())
    page = await classifier_screen.screen.blank(locale=locale)
    await page.clock.install(time=NOON)
    await page.clock.pause_at(NOON + timedelta(seconds=1))
    await page.add_init_script(NOTE_OPENED)
    await page.goto(f"{classifier_screen.screen.address}/classificador/execucoes/{execution}")
    await expect(page.locator("html[data-opened]")).to_be_attached()
    await page.clock.fast_forward(59_000)
    await expect(page.locator("#silent")).to_be_hidden()
    await page.clock.fast_forward(1_500)
    await expect(page.locator("#silent")).to_contain_text(
        translator.gettext("No events since %(time)s.", time="").rstrip(" .")
    )
    await expect(page.get_by_role("link", name=translator.gettext("Reload now"))).to_be_visible()
    live: Streams = classifier_screen.screen.server.state.live
    await live.send_pings(live.list_streams())
    await expect(page.locator("#silent")).to_be_hidden()


@pytest.mark.parametrize(("locale", "language"), LANGUAGES)
async def test_labels_are_corrected_and_confirmed_in_their_rows(
    classifier_screen: ClassifierScreen, locale: str, language: str
) -> None:
    translator = create_translator(language)
    execution = await classifier_screen.run_execution({**TEXTS, "vago.txt": VAGUE, "bad.bin": UNREADABLE})
    page = await classifier_screen.open(f"execucoes/{execution}", language=locale)
    await page.locator('tr[data-c="a.txt"]').get_by_role("link", name=translator.pgettext("action", "Correct")).click()
    await page.get_by_label(translator.gettext("Correct label")).select_option("parecer")
    await page.get_by_role("button", name=translator.pgettext("action", "Save")).click()
    await expect(page.get_by_role("status")).to_have_text(translator.gettext("The label has been corrected."))
    await expect(page.locator('tr[data-c="a.txt"]')).to_contain_text(
        translator.gettext("the model said %(label)s", label="sentença")
    )
    await classifier_screen.work()
    await expect(page.locator("#documents")).to_have_attribute("data-over", "yes")
    await (
        page.locator('tr[data-c="vago.txt"]')
        .get_by_role("button", name=translator.pgettext("action", "Confirm"))
        .click()
    )
    await expect(page.locator('tr[data-c="vago.txt"]')).to_contain_text(translator.gettext("confirmed by a person"))
    await classifier_screen.work()
    await expect(page.locator("#documents")).to_have_attribute("data-over", "yes")
    await page.locator('tr[data-c="bad.bin"]').get_by_role("button", name=translator.pgettext("action", "Skip")).click()
    await expect(page.locator('tr[data-c="bad.bin"]')).to_contain_text(
        translator.pgettext("document status", "Skipped")
    )
    await classifier_screen.work()
    assert (await classifier_screen.client.runs.get(execution)).state is RunState.COMPLETED


async def test_filtered_rows_appear_and_disappear_as_documents_change(classifier_screen: ClassifierScreen) -> None:
    execution = await classifier_screen.begin(await classifier_screen.project(), {"bad.bin": UNREADABLE, **TEXTS})
    waiting = await classifier_screen.open(f"execucoes/{execution}?status=PENDENTE")
    done = await classifier_screen.open(f"execucoes/{execution}?status=CONCLUIDO&q=.txt")
    await expect(waiting.locator("tr[data-c]")).to_have_count(4)
    await expect(done.get_by_text(create_translator("pt").gettext("No matching documents."))).to_be_visible()
    await classifier_screen.work()
    await expect(done.locator("tr[data-c]")).to_have_count(3)
    assert await done.locator("tr[data-c]").evaluate_all("all => all.map(row => row.id)") == ["d2", "d3", "d4"]
    await expect(done.get_by_text(create_translator("pt").gettext("No matching documents."))).to_be_hidden()
    await expect(waiting.locator("tr[data-c]")).to_have_count(0)
    await expect(waiting.get_by_text(create_translator("pt").gettext("No matching documents."))).to_be_visible()


@pytest.mark.parametrize(("locale", "language"), LANGUAGES)
async def test_documents_are_found_the_execution_cancelled_and_its_project_changed_and_deleted(
    classifier_screen: ClassifierScreen, locale: str, language: str
) -> None:
    translator = create_translator(language)
    project = await classifier_screen.project()
    execution = await classifier_screen.begin(project)
    page = await classifier_screen.open(f"execucoes/{execution}", language=locale)
    await page.get_by_label(translator.gettext("Part of the name")).fill("B.TX")
    await page.keyboard.press("Enter")
    await expect(page.locator("tr[data-c]")).to_have_count(1)
    await page.get_by_role("link", name=translator.gettext("Clear filters")).click()
    await page.locator("#c-chips").get_by_role("link", name=translator.pgettext("documents", "Pending")).click()
    await expect(page.locator("tr[data-c]")).to_have_count(3)
    await page.locator("[data-key=cancel] summary").click()
    await page.get_by_role("button", name=translator.gettext("Yes, cancel it")).click()
    await expect(page.get_by_role("status")).to_have_text(translator.gettext("The execution has been cancelled."))
    await expect(page.locator("#c-head .badge")).to_have_text(translator.pgettext("execution status", "CANCELLED"))
    await page.goto(f"{classifier_screen.screen.address}/classificador/{project}")
    await page.get_by_role("link", name=translator.gettext("Edit project")).click()
    await page.get_by_label(translator.gettext("Name"), exact=True).fill("Outro nome")
    await page.get_by_role("button", name=translator.gettext("Save changes")).click()
    await expect(page.get_by_role("status").first).to_have_text(
        translator.gettext("The project has been saved. Executions that already started keep the previous settings.")
    )
    await expect(page.get_by_role("heading", name="Outro nome")).to_be_visible()
    await page.get_by_role("link", name=translator.gettext("Edit project")).click()
    await page.get_by_text(translator.gettext("Delete project…")).click()
    await page.get_by_role("button", name=translator.gettext("Yes, delete it")).click()
    await expect(page.get_by_role("status")).to_have_text(
        translator.gettext("The project has been deleted. Its executions are kept.")
    )
    assert (await classifier_screen.client.runs.get(execution)).state is RunState.CANCELLED


async def test_rows_change_in_place_and_controls_in_use_are_kept(classifier_screen: ClassifierScreen) -> None:
    project = await classifier_screen.project()
    texts = {f"{number:02}.txt": f"{TEXTS['a.txt']} {number}" for number in range(60)}
    execution = await classifier_screen.begin(project, texts)
    page = await classifier_screen.open(f"execucoes/{execution}")
    await page.locator("[data-key=cancel] summary").click()
    await page.locator('tr[data-c="40.txt"]').scroll_into_view_if_needed()
    top = "document.querySelector('tr[data-c=\"40.txt\"]').getBoundingClientRect().top"
    before = await page.evaluate(top)
    await page.locator('tr[data-c="00.txt"]').evaluate("row => row.dataset.seen = 'yes'")
    await classifier_screen.work()
    await expect(page.locator('tr[data-s="CONCLUIDO"]')).to_have_count(50)  # of the first page
    await expect(page.locator('tr[data-seen="yes"]')).to_have_count(0)
    await expect(page.get_by_role("button", name="Sim, cancelar")).to_be_visible()
    assert abs(await page.evaluate(top) - before) < 40


async def test_hostile_text_is_never_executed_and_no_page_is_wider_than_the_screen(
    classifier_screen: ClassifierScreen,
) -> None:
    hostile = [{"rotulo": EVERYTHING[:100], "descricao": EVERYTHING}, {"rotulo": "ofício"}]
    examples = [{"texto": EVERYTHING, "rotulo": EVERYTHING[:100]}, EXAMPLES[1]]
    named = EVERYTHING.replace("\n", " ")
    project = await classifier_screen.project(nome=named[:100], prompt=EVERYTHING, taxonomia=hostile, exemplos=examples)
    execution = await classifier_screen.begin(
        project, {f"{named[:150]}.txt": EVERYTHING, "b.bin": UNREADABLE}, named[:200]
    )
    await classifier_screen.work()
    pages = ("", "?novo=1", project, f"{project}?editar=1", f"execucoes/{execution}?q=", f"execucoes/{execution}")
    dialogs: list[str] = []
    for language, width, scheme in (("en", 1440, "light"), ("pt-BR", 390, "dark")):
        page = await classifier_screen.open("", language=language, width=width, scheme=scheme)
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        for path in pages:
            await page.goto(f"{classifier_screen.screen.address}/classificador/{path}")
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        await page.locator("tr[data-c]").first.get_by_role("link").last.click()
        await expect(page.locator("form.relabel select")).to_be_visible()
    assert dialogs == []


def make_file(name: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": data}


def read(path: Path) -> str:
    return path.read_text("utf-8-sig")


def make_zip(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


async def test_a_document_is_read_and_its_label_decided_by_keys(classifier_screen: ClassifierScreen) -> None:
    hostile = f"<script>alert(1)</script> {TEXTS['b.txt']}"
    execution = await classifier_screen.run_execution({**TEXTS, "d.txt": hostile}, confianca_minima=1)
    page = await classifier_screen.screen.blank(locale="en")
    await page.clock.install(time=NOON)
    await page.goto(f"{classifier_screen.screen.address}/classificador/execucoes/{execution}")
    await page.keyboard.press("j")
    reader = page.locator("#leitor")
    await expect(reader).to_contain_text("a.txt")
    await expect(reader.locator(".paper")).to_contain_text(TEXTS["a.txt"])
    await page.keyboard.press("1")
    await expect(reader).to_contain_text("b.txt")
    await page.keyboard.press("u")
    await expect(reader).to_contain_text("a.txt")
    await page.keyboard.press("a")
    await expect(reader).to_contain_text("b.txt")
    await expect(page.locator("#toasts")).to_contain_text("a.txt: sentença")
    await page.keyboard.press("1")
    await expect(reader).to_contain_text("c.txt")
    await expect(page.locator('tr[data-c="a.txt"]')).to_contain_text("confirmed by a person")
    await classifier_screen.work()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("Undo the last decision")
    await page.keyboard.press("Escape")
    await page.clock.run_for(10_000)
    await expect(page.locator('tr[data-c="b.txt"]')).to_contain_text("the model said")
    await expect(page.locator('tr[data-c="a.txt"]')).to_contain_text("confirmed by a person")
    await page.keyboard.press("j")
    await expect(reader.locator(".paper")).to_contain_text("<script>alert(1)</script>")
    await page.keyboard.press("k")
    await classifier_screen.work()
    for code in ("c.txt", "d.txt"):
        await page.locator(f'tr[data-c="{code}"] [data-pick]').check()
    await page.locator("#varios select").select_option("parecer")
    await page.locator("#varios button[value=corrigir]").click()
    await expect(page.get_by_role("status").first).to_have_text("The selected documents have been updated.")
    for code in ("c.txt", "d.txt"):
        await expect(page.locator(f'tr[data-c="{code}"] .strong')).to_have_text("parecer")
