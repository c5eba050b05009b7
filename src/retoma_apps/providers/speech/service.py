"""What clients of speech services share."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn, TypeVar

from retoma.errors import ProviderDown
from retoma.outgoing import NoResponse, Response
from retoma_apps.providers.http_service import HttpService, ServiceSettings
from retoma_apps.providers.speech.errors import SpeechRefused, SpeechUnavailable

DEFAULT_RETRY_DELAY = timedelta(seconds=10)
SettingsType = TypeVar("SettingsType", bound=ServiceSettings)


class SpeechService(HttpService[SettingsType]):
    def _timeout_error(self, error: NoResponse) -> Exception:
        return SpeechUnavailable(f"{self.label} did not answer: {error}", "SPEECH_TIMEOUT")

    def _raise_error(self, answer: Response, why: str) -> NoReturn:
        """Raise by the status. `why` is the service's own message in parentheses, or empty."""
        status = answer.status
        self._raise_account_error(answer, status, why, DEFAULT_RETRY_DELAY)
        if status in (408, 504):
            raise SpeechUnavailable(f"{self.label} timed out{why}", "SPEECH_TIMEOUT")
        if status >= 500:
            raise ProviderDown(f"{self.label} failed with {status}{why}")
        if status == 413:
            raise SpeechRefused(f"the text is too long for {self.label}: split it{why}", "SPEECH_TOO_LONG")
        raise SpeechRefused(f"{self.label} rejected this request with {status}{why}", "SPEECH_BAD_REQUEST")
