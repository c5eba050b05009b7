"""The demo of the classifier: a batch of documents, classified once."""

from __future__ import annotations

from pathlib import Path

from retoma.files import FileSettings, create_file_store
from retoma.store.database import Database
from retoma.testing import sandbox
from retoma_apps.classifier.application import make_app
from tests.conftest import empty_database

ADDRESS = "http://127.0.0.1:8765"


async def test_a_dozen_documents_are_classified_once_and_well(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    files = create_file_store(FileSettings(home=tmp_path))
    async with sandbox(make_app(files, None), database) as opened:
        demo = opened.app.demo
        assert demo is not None
        messages = demo(opened.client, ADDRESS, "en")
        (started, run) = await anext(messages), (await opened.client.runs.list())[0]
        assert started == f"12 documents are being classified: {ADDRESS}/classificador/execucoes/{run.id}"
        await opened.work()
        assert "3 contrato, 3 currículo, 3 nota fiscal, 3 reclamação" in "".join([each async for each in messages])
        again = [each async for each in demo(opened.client, ADDRESS, "pt")]
        assert again == [f"Os documentos do exemplo já foram classificados: {ADDRESS}/classificador/execucoes/{run.id}"]
        assert len(await opened.client.runs.list()) == 1
        assert (await opened.client.runs.get_results(run.id))["summary"]["pouca_confianca"] == 0
