"""Write and translate with a language model. Its answers are untrusted: bounded, cleaned and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from retoma_apps.media.services import UsageCallback
from retoma_apps.media.spoken_text import clean_text, truncate, word_count
from retoma_apps.providers.llm import InvalidJson, Llm, Message, ask_structured, quote_text, quoting_rule
from retoma_apps.stories.models import LONGEST_TITLE, MOST_SCENES, Brief, Metadata, Scene, Texts

_TOKENS_PER_SCENE = 400
_TEXT_TOKENS = 3_000
_LONGEST_DESCRIPTION, _LONGEST_TAG = 4_500, 60
_SCRIPT = """You write the script of a narrated film in the language with the BCP 47 tag {language}, to be read aloud: \
{scenes} scenes of 15 to 40 words each. Short sentences, no markup, no stage directions, no greeting to a channel.
"visual" describes the picture of the scene for an image model in one sentence, without any text in the picture.
State nothing as certain that you are not certain of. If there is nothing to tell about the topic, answer with no \
scenes."""
_TRANSLATION = """You translate the subtitles of a film from the language with the BCP 47 tag {language} to the one \
with the tag {other}. Keep the meaning, and be as brief as the original. Answer with nothing but the translation."""
_METADATA = """You write the title (at most 90 characters), the description (at most 1,500) and at most 12 tags of a \
film in the language with the BCP 47 tag {language}, and the title and description also in each of these languages: \
{languages}. Promise nothing that the film does not show."""


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DraftScene(Answer):
    text: str = Field(max_length=2_000)
    visual: str = Field(max_length=300)


class DraftScript(Answer):
    scenes: list[DraftScene] = Field(max_length=MOST_SCENES)


class Translation(Answer):
    text: str = Field(min_length=1, max_length=4_000)


class DraftTexts(Answer):
    language: str = Field(max_length=20)
    title: str = Field(min_length=1, max_length=200)
    description: str = Field(max_length=3_000)


class DraftMetadata(Answer):
    title: str = Field(min_length=1, max_length=200)
    description: str = Field(max_length=3_000)
    tags: list[Annotated[str, Field(max_length=100)]] = Field(max_length=20)
    localizations: list[DraftTexts] = Field(max_length=40)


Kind = TypeVar("Kind", bound=Answer)


class LlmStoryWriter:
    """Raises the same errors as `ask_structured`."""

    is_offline = False
    topics = None

    def __init__(self, llm: Llm, model: str) -> None:
        self.provider = llm.name
        self.name = model
        self._llm = llm

    async def script(self, brief: Brief, *, on_usage: UsageCallback | None = None) -> list[Scene]:
        task = _SCRIPT.format(language=brief.language, scenes=brief.scenes)
        quoted = [("topic", brief.topic), ("style", brief.style)]
        tokens = brief.scenes * _TOKENS_PER_SCENE + _TEXT_TOKENS
        draft = await self._ask(task, quoted, DraftScript, tokens, on_usage)
        spoken = [scene for scene in draft.scenes if word_count(scene.text)]
        return [
            Scene(id=str(number), text=clean_text(each.text), visual=clean_text(each.visual) or "…")
            for number, each in enumerate(spoken, 1)
        ]

    async def translate(
        self, brief: Brief, scene: Scene, language: str, *, on_usage: UsageCallback | None = None
    ) -> str:
        task = _TRANSLATION.format(language=brief.language, other=language)
        answer = await self._ask(task, [("text", scene.text)], Translation, _TEXT_TOKENS, on_usage)
        if not word_count(text := clean_text(answer.text)):
            raise InvalidJson("the model's translation contains no word", answer.text)
        return text

    async def metadata(
        self, brief: Brief, scenes: Sequence[Scene], *, on_usage: UsageCallback | None = None
    ) -> Metadata:
        task = _METADATA.format(language=brief.language, languages=", ".join(brief.languages) or "none")
        quoted = [("topic", brief.topic), ("script", "\n".join(scene.text for scene in scenes))]
        tokens = _TEXT_TOKENS * (1 + len(brief.languages))
        draft = await self._ask(task, quoted, DraftMetadata, tokens, on_usage)
        written = {each.language: each for each in draft.localizations}
        if missing := [language for language in brief.languages if language not in written]:
            raise InvalidJson(f"the model wrote no title in {', '.join(missing)}", "")
        tags = dict.fromkeys(truncate(clean_text(tag).replace(",", ""), _LONGEST_TAG) for tag in draft.tags)
        return Metadata(
            title=_clean_title(draft.title, brief.topic),
            description=_clean_lines(draft.description),
            tags=[tag for tag in tags if tag],
            localizations={
                language: Texts(
                    title=_clean_title(written[language].title, brief.topic),
                    description=_clean_lines(written[language].description),
                )
                for language in brief.languages
            },
        )

    async def _ask(
        self,
        task: str,
        quoted: Sequence[tuple[str, str]],
        kind: type[Kind],
        max_tokens: int,
        on_usage: UsageCallback | None,
    ) -> Kind:
        system = "\n\n".join([task, *(quoting_rule(name) for name, _ in quoted)])
        user = "\n\n".join(quote_text(text, name) for name, text in quoted if text.strip())
        messages = [Message("system", system), Message("user", user)]
        answer = await ask_structured(
            self._llm, messages, kind, model=self.name, max_tokens=max_tokens, on_usage=on_usage
        )
        return answer.value


def _clean_title(title: str, topic: str) -> str:
    return truncate(clean_text(title), LONGEST_TITLE) or truncate(clean_text(topic), LONGEST_TITLE)


def _clean_lines(text: str) -> str:
    return "\n".join(clean_text(line) for line in text.splitlines())[:_LONGEST_DESCRIPTION]
