"""Why a single sign-on ended without a session."""

from __future__ import annotations

from enum import StrEnum


class SignOnFailure(StrEnum):
    """The reasons that the login page explains. The SQL function `sign_on` returns the last five."""

    PROVIDER_UNREACHABLE = "provider_unreachable"
    PROVIDER_REFUSED = "provider_refused"
    NOT_STARTED_HERE = "not_started_here"
    INVALID_TOKEN = "invalid_token"  # noqa: S105  (a name)
    EMAIL_NOT_VERIFIED = "email_not_verified"
    EMAIL_OF_ANOTHER = "email_of_another"
    UNKNOWN_PERSON = "unknown_person"
    NO_ROLE = "no_role"
    DISABLED = "disabled"


class SignOnFailed(Exception):
    """`detail` is for the log of the server. It contains neither codes nor tokens. `person` is the account's number."""

    def __init__(self, failure: SignOnFailure, detail: str = "", person: int | None = None) -> None:
        super().__init__(f"{failure}: {detail}" if detail else str(failure))
        self.failure = failure
        self.detail = detail
        self.person = person
