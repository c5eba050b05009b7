from __future__ import annotations

import io
import shlex

import pytest

from retoma.cli.password import password
from retoma.engine.admin_sessions import verify_password
from retoma.errors import InvalidInput


def test_the_command_prints_a_setting_that_accepts_this_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a long enough password\n"))
    password()
    name, _, value = shlex.split(capsys.readouterr().out)[0].partition("=")
    assert name == "RETOMA_ADMIN_PASSWORD_HASH"
    assert verify_password("a long enough password", value)
    assert not verify_password("another long password", value)


def test_a_short_password_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    with pytest.raises(InvalidInput, match="12 to"):
        password()
