from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from retoma import GiveUp
from retoma_apps.autowriter.steps.error_codes import ERROR_CODES, Actor, standard_code
from retoma_apps.providers.images.errors import ImageRefused, ImageUnavailable, InvalidImage
from retoma_apps.providers.keywords.errors import KeywordsError, KeywordsRefused
from retoma_apps.providers.llm.errors import ContentFiltered, CutShort, InvalidAnswer, LlmUnavailable
from retoma_apps.providers.wordpress import PublicationFailed

DASHBOARD = (
    "CSV_INVALID BLOG_NOT_FOUND LLM_TIMEOUT LLM_INVALID_JSON KEYWORDS_API_FAIL IMAGE_API_FAIL QUALITY_GATE_FAIL "
    "WP_PUBLISH_FAIL"
)
PLUGIN = (
    "AUTH_FAILED HMAC_INVALID RATE_LIMIT BLOG_SWITCH_FAIL CATEGORY_CREATE_FAIL MEDIA_UPLOAD_FAIL SEO_APPLY_FAIL "
    "IDEMPOTENCY_DUPLICATE"
)

ACTORS = tuple(f"| {actor} |" for actor in get_args(Actor))


def test_the_table_has_every_code_with_its_class_retry_action_and_actor() -> None:
    assert {*DASHBOARD.split(), *PLUGIN.split()} <= set(ERROR_CODES)
    for each in ERROR_CODES.values():
        assert each.error_class
        assert each.next_action
        assert each.actor


def test_the_documentation_has_the_same_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "applications" / "autowriter.md"
    written = [line for line in page.read_text().splitlines() if line.endswith(ACTORS) and line.count("|") == 6]
    expected = [
        f"| `{each.code}` | {each.error_class} | {'yes' if each.is_retried else 'no'} | {each.next_action} "
        f"| {each.actor} |"
        for each in sorted(ERROR_CODES.values(), key=lambda each: each.code)
    ]
    assert written == expected


@pytest.mark.parametrize(
    "error",
    [
        *(each("") for each in (LlmUnavailable, InvalidAnswer, CutShort, ContentFiltered)),
        *(ImageRefused("", code) for code in ("IMAGE_CONTENT_FILTERED", "IMAGE_BAD_REQUEST")),
        *(ImageUnavailable(""), InvalidImage(""), KeywordsError(""), KeywordsRefused("")),
        *(PublicationFailed("", "WP_PUBLISH_FAIL"), GiveUp("", "WP_REJECTED")),
    ],
    ids=repr,
)
def test_the_table_says_of_every_error_of_a_provider_whether_it_is_retried(error: Any) -> None:
    assert ERROR_CODES[standard_code(error.code)].is_retried is not isinstance(error, GiveUp)


def test_codes_that_a_retry_cannot_fix_are_not_retried() -> None:
    never = {"AUTH_FAILED", "HMAC_INVALID", "QUALITY_GATE_FAIL", "CSV_INVALID", "BLOG_NOT_FOUND"}
    assert not [code for code in never if ERROR_CODES[code].is_retried]
    assert ERROR_CODES["LLM_TIMEOUT"].is_retried


@pytest.mark.parametrize(
    ("code", "standard"),
    [
        ("LLM_UNAVAILABLE", "LLM_TIMEOUT"),
        ("LLM_CUT_SHORT", "LLM_INVALID_JSON"),
        ("IMAGE_UNAVAILABLE", "IMAGE_API_FAIL"),
        ("KEYWORDS_TIMEOUT", "KEYWORDS_API_FAIL"),
        ("PUBLISH_FAILED", "WP_PUBLISH_FAIL"),
        ("RATE_LIMIT", "RATE_LIMIT"),
        ("TIMEOUT", "TIMEOUT"),
    ],
)
def test_a_providers_code_has_one_standard_code(code: str, standard: str) -> None:
    assert standard_code(code) == standard
