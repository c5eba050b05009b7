"""The sample data: a run in progress, a stuck one, and a failed one whose webhook becomes a dead letter."""

from __future__ import annotations

from collections.abc import AsyncIterator

from retoma import Client, Webhook
from retoma.states import RunState
from retoma.translations import N_, Translator
from retoma_apps.samples.pipelines import LOCALE, SampleInput, failing, rejected, slow

WEBHOOK_URL = "http://127.0.0.1:9/sample-webhook"
"""The port of the discard service, on which no receiver listens."""
_STARTED = N_(
    "Sample data to explore: a run in progress, a stuck run and a failed run: %(address)s/runs?q=%(search)s\n"
    "In half a minute, a webhook that cannot be delivered will become a dead letter: %(address)s/deliveries?state=dead"
)
_SEARCH = N_("Sample")


async def run_demo(client: Client, address: str, language: str) -> AsyncIterator[str]:
    """Start one run of each kind, once for each language, and another slow one if the last has ended."""
    translator, sample = Translator(language, [LOCALE]), SampleInput.model_validate({"language": language})
    key, webhook = f"sample-{language}", Webhook(WEBHOOK_URL, schedule="short")
    if not await client.runs.list(pipeline=slow.name, states=[RunState.RUNNING], limit=1):
        await client.start(slow, sample)
    await client.start(rejected, sample, key=key)
    await client.start(failing, sample, key=key, webhook=webhook)
    yield translator.gettext(_STARTED, address=address, search=translator.gettext(_SEARCH))
