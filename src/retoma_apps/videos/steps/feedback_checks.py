"""Check which feedback each step of a video can follow, before work is sent back with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from retoma.reviews import Feedback
from retoma.translations import N_
from retoma_apps.media.content_words import content_words
from retoma_apps.media.models import Language
from retoma_apps.providers import images, llm
from retoma_apps.providers.feedback import refuse_feedback
from retoma_apps.providers.provider import Provider
from retoma_apps.providers.topics import find_topic
from retoma_apps.videos.models import Research
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps.writing.bundled import can_follow

_FASTER = r"(?:um pouco )?mais r[áa]pid\w*|\bacele\w+|(?:a (?:little|bit) )?(?:faster|quicker)"
_SLOWER = r"(?:um pouco )?mais (?:lent\w*|devagar)|\bdesacele\w+|(?:a (?:little|bit) )?slower"
_SUBTITLES = r"(?:sem|com) (?:as )?legendas|(?:no|without|with) (?:the )?subtitles"
_OTHERS = r"\boutr[ao]s?\b|\bdiferentes?\b|\b(?:an)?other\b|\bdifferent\b"
_PICTURE_WORDS = frozenset(
    re.findall(
        r"\w+",
        "capa capas cor cores imagem imagens figura thumbnail thumbnails colour colours color colors picture pictures "
        "image images",
    )
)
_FOOTAGE_WORDS = frozenset(("clipe", "clipes", "cena", "cenas", "clip", "clips", "scene", "scenes", "footage"))
_POLITE_WORDS = frozenset(
    re.findall(
        r"\w+",
        "faça fazer deixe deixar favor pouco filme vídeo voz narração quero gostaria fale agora aqui "
        "make please little film video voice narration want would like bit speak now here",
    )
)

_SCRIPT = N_(
    "“%(notes)s” is not supported: without a language model the script can only become shorter or longer, or include "
    "another scene of this topic that comes with Retoma, and only as far as there are scenes that it does not have "
    "yet: “shorter”, “longer”, or a few words about that scene; for anything else edit the text, or set %(variables)s"
)
_NARRATION = N_(
    "“%(notes)s” is not supported: the narration can use another voice or speed: fill in “voice” or “rate”, or write "
    "“faster” or “slower”; to change the words, edit the script"
)
_FOOTAGE = N_(
    "“%(notes)s” is not supported: clips can be replaced: list their numbers in “clips” and new searches in “queries”, "
    "or write “other clips” to replace all of them; notes do not change the search"
)
_FILM = N_(
    "“%(notes)s” is not supported: the film can have subtitles or not: fill in “subtitles”, or write “without "
    "subtitles” or “with subtitles”; for other clips send it back to the footage, for another voice or speed to the "
    "narration, and for other words to the script"
)
_THUMBNAILS = N_(
    "“%(notes)s” is not supported: without an image model, thumbnails can have other words or other pictures: fill in "
    "“thumbnail_texts”, or write “other pictures”; for anything else set %(variables)s"
)

_COMMENTS = N_(
    "comments on moments have no effect on this step: send it back to the footage to replace the clips there (“other "
    "clip”), to the narration to change voice or speed, or to the script to change the words"
)


def check_script_feedback(
    feedback: Feedback, topic: str, language: Language, seconds: int, research: Research, *, services: Services
) -> None:
    """Raise FeedbackNotSupported if the offline writer cannot follow this feedback."""
    _check_bundled(feedback, topic, language, seconds, research.feedback_history, services)


def check_research_feedback(
    feedback: Feedback, topic: str, language: Language, seconds: int, *, services: Services
) -> None:
    """Raise FeedbackNotSupported if the bundled topic has nothing on the request."""
    _check_bundled(feedback, topic, language, seconds, [], services)


def _check_bundled(
    feedback: Feedback, topic: str, language: Language, seconds: int, history: Sequence[str], services: Services
) -> None:
    if services.writer.follows_notes:
        return
    bundled = find_topic(topic, language)
    if bundled is None or not can_follow(feedback.text, bundled, seconds, history):
        raise refuse_feedback(feedback, _SCRIPT, llm.PROVIDERS)


def check_narration_feedback(feedback: Feedback) -> None:
    """Raise FeedbackNotSupported for notes that have no effect, even if a field is filled in too."""
    if feedback.written_text or not {"voice", "rate"} & feedback.extra.keys():
        other_voice = (_OTHERS,) if "voice" in feedback.extra else ()
        _check_notes(feedback, _NARRATION, _FASTER, _SLOWER, *other_voice)


def check_footage_feedback(feedback: Feedback) -> None:
    """Raise FeedbackNotSupported for notes: clips are chosen by number or moment, and searched for by `queries`."""
    if feedback.written_text:
        _check_notes(feedback, _FOOTAGE, _OTHERS, also_allowed=_PICTURE_WORDS | _FOOTAGE_WORDS)


def check_film_feedback(feedback: Feedback) -> None:
    _refuse_comments(feedback)
    if feedback.written_text or "subtitles" not in feedback.extra:
        _check_notes(feedback, _FILM, _SUBTITLES)


def check_thumbnail_feedback(feedback: Feedback, *, services: Services) -> None:
    _refuse_comments(feedback)
    if services.images.follows_notes:
        return
    if feedback.written_text or "thumbnail_texts" not in feedback.extra:
        _check_notes(feedback, _THUMBNAILS, _OTHERS, also_allowed=_PICTURE_WORDS, providers=images.PROVIDERS)


def _refuse_comments(feedback: Feedback) -> None:
    if feedback.comments:
        raise refuse_feedback(feedback, _COMMENTS)


def _check_notes(
    feedback: Feedback,
    message: str,
    *known: str,
    also_allowed: frozenset[str] = frozenset(),
    providers: Iterable[type[Provider]] = (),
) -> None:
    if not _is_fully_understood(feedback.written_text, *known, also_allowed=also_allowed):
        raise refuse_feedback(feedback, message, providers)


def _is_fully_understood(notes: str, *known: str, also_allowed: frozenset[str] = frozenset()) -> bool:
    """Return whether the notes contain a known request and nothing else that could be one."""
    requests = re.compile("|".join(known), re.IGNORECASE)
    left = content_words(requests.sub(" ", notes))
    return bool(requests.search(notes)) and all(word.casefold() in _POLITE_WORDS | also_allowed for word in left)
