"""The request for an article, its blog, and what the steps return.

Answers of language models are validated against some of these models, so every text and list has a limit.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from retoma import File
from retoma_apps.providers.unicode_text import compose

KEY_VERSION = 1
IDENTITY_FIELDS = ("blog_id", "theme", "objective", "language", "word_count")
Language = Literal["pt-BR", "en", "es"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
MIN_WORDS, MAX_WORDS = 200, 5_000
MAX_FACTS, MAX_SECTIONS = 40, 20
MAX_KEYWORD_LENGTH = 80
MAX_CONTENT_LENGTH = 500_000
"""Characters of a post, with its markup: ten times the longest article."""
LONGEST_INPUT = 20_000
"""Characters of a text that are worth normalising: four times the highest limit."""
FEATURED = "featured"
_INLINE = "inline-"


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def normalize_text(value: Any) -> Any:
    """Return a text in NFC with single spaces, so the same words are the same text.

    Return other values, and a text that is longer than any limit, unchanged: validation refuses them.
    """
    is_text = isinstance(value, str) and len(value) <= LONGEST_INPUT
    return " ".join(compose(value).split()) if is_text else value


def normalize_language(value: Any) -> Any:
    """Return `pt-BR` for `pt`, `pt_br` or `PT-BR`, `en` for `en-US`, and so on; unknown values unchanged."""
    if not isinstance(value, str):
        return value
    prefix = value.strip().replace("_", "-").lower().partition("-")[0]
    return next((language for language in LANGUAGES if language.lower().partition("-")[0] == prefix), value)


Text = Annotated[str, BeforeValidator(normalize_text)]
BlogId = Annotated[str, BeforeValidator(normalize_text), Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class ArticleRequest(FrozenModel):
    """What an article is about. The first five fields identify it; all are compared if it is requested again."""

    blog_id: BlogId = Field(description="The blog, as it is called here.")
    theme: Annotated[Text, Field(min_length=3, max_length=300)]
    objective: Annotated[Text, Field(min_length=3, max_length=500)]
    language: Annotated[Language, BeforeValidator(normalize_language)]
    word_count: int = Field(ge=MIN_WORDS, le=MAX_WORDS)
    keyword: Annotated[
        Text, Field(max_length=MAX_KEYWORD_LENGTH, description="The focus keyword; empty: the keywords API decides.")
    ] = ""
    category: Annotated[Text, Field(max_length=100, description="Empty: the categories of the blog.")] = ""
    audience: Annotated[Text, Field(max_length=200)] = ""
    tone: Annotated[Text, Field(max_length=200)] = ""

    @property
    def identity(self) -> str:
        """Return the idempotency key: the SHA-256 of canonical JSON of the tenant and the identifying fields.

        The blog is the tenant. Numbers and texts differ in JSON, and names separate the fields, so different articles
        never have the same text.
        """
        identifying = {name: getattr(self, name) for name in IDENTITY_FIELDS}
        canonical = {"version": KEY_VERSION, "tenant": self.blog_id, **identifying}
        text = json.dumps(canonical, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()


class Blog(FrozenModel):
    """The profile of a blog, which is a tenant.

    `site` is the name under which the settings have the address and the secret of its WordPress, empty if there is
    only one; `site_id` is the number of the blog within a network. No secret is ever stored here.
    """

    name: Annotated[Text, Field(min_length=1, max_length=200)]
    language: Annotated[Language, BeforeValidator(normalize_language)] = "pt-BR"
    site: Annotated[str, BeforeValidator(normalize_text), Field(max_length=100)] = ""
    site_id: int | None = Field(None, ge=1, le=2**31)
    categories: list[Annotated[Text, Field(min_length=1, max_length=100)]] = Field([], max_length=20)


class Fact(FrozenModel):
    """A statement that can be checked, and where."""

    text: Annotated[Text, Field(min_length=1, max_length=600)]
    source_name: Annotated[Text, Field(max_length=200)]
    source_url: Annotated[str, Field(max_length=1000)]

    @property
    def has_source(self) -> bool:
        return bool(self.source_name) and self.source_url.startswith(("https://", "http://"))


class BriefDraft(FrozenModel):
    """What a writer answers for a brief."""

    angle: Annotated[Text, Field(min_length=1, max_length=1000)]
    audience: Annotated[Text, Field(max_length=300)]
    facts: list[Fact] = Field(max_length=MAX_FACTS)


class Brief(BriefDraft):
    """`pipeline_version` is that of the code which started this revision of the article."""

    pipeline_version: str


SectionId = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,60}$")]
FactNumbers = Annotated[list[int], Field(max_length=MAX_FACTS)]
"""Facts of the brief, counted from 1."""


class OutlineSection(FrozenModel):
    id: SectionId
    topic: Annotated[Text, Field(min_length=1, max_length=200)]
    facts: FactNumbers


class Outline(FrozenModel):
    sections: list[OutlineSection] = Field(min_length=1, max_length=MAX_SECTIONS)


class Keyword(FrozenModel):
    """`volume` is the number of searches per month, None if unknown."""

    text: Annotated[Text, Field(min_length=1, max_length=MAX_KEYWORD_LENGTH)]
    volume: int | None = None


class Keywords(FrozenModel):
    focus: str
    others: list[Keyword]
    provider: str


class TitleDraft(FrozenModel):
    title: Annotated[Text, Field(min_length=1, max_length=200)]


class TitleSlug(TitleDraft):
    slug: str


class Meta(FrozenModel):
    title: Annotated[Text, Field(min_length=1, max_length=200)]
    description: Annotated[Text, Field(min_length=1, max_length=400)]


class Heading(FrozenModel):
    section: SectionId
    level: int = Field(ge=2, le=4)
    text: Annotated[Text, Field(min_length=1, max_length=200)]


class Headings(FrozenModel):
    headings: list[Heading] = Field(min_length=1, max_length=MAX_SECTIONS)


Paragraphs = Annotated[list[Annotated[Text, Field(min_length=1, max_length=5000)]], Field(max_length=60)]


class SectionText(FrozenModel):
    section: SectionId
    paragraphs: Paragraphs
    facts: FactNumbers


class Content(FrozenModel):
    """The body as plain text; the payload turns it into HTML, so a model cannot put markup into a post."""

    introduction: Paragraphs
    sections: list[SectionText] = Field(min_length=1, max_length=MAX_SECTIONS)
    conclusion: Paragraphs

    @property
    def paragraphs(self) -> list[str]:
        return [*self.introduction, *(text for each in self.sections for text in each.paragraphs), *self.conclusion]

    @property
    def used_facts(self) -> set[int]:
        return {number for each in self.sections for number in each.facts}


class Tags(FrozenModel):
    tags: list[Annotated[Text, Field(min_length=1, max_length=60)]] = Field(max_length=12)


class Question(FrozenModel):
    question: Annotated[Text, Field(min_length=1, max_length=300)]
    answer: Annotated[Text, Field(min_length=1, max_length=1500)]


class Faq(FrozenModel):
    questions: list[Question] = Field(max_length=10)


class InternalLink(FrozenModel):
    """A link to another post of the blog, at the end of a section."""

    section: str
    url: str
    title: str


class Links(FrozenModel):
    links: list[InternalLink]


class ImagePrompt(FrozenModel):
    """`type` is `featured`, or `inline-` and the id of the section that the image belongs to."""

    type: Annotated[str, Field(pattern=rf"^({FEATURED}|{_INLINE}[a-z0-9-]{{1,60}})$")]
    prompt: Annotated[Text, Field(min_length=1, max_length=1000)]
    alt: Annotated[Text, Field(min_length=1, max_length=200)]

    @property
    def section(self) -> str | None:
        return self.type.removeprefix(_INLINE) if self.type != FEATURED else None

    @staticmethod
    def type_of_section(section: str) -> str:
        return f"{_INLINE}{section}"


class ImagePrompts(FrozenModel):
    images: list[ImagePrompt] = Field(max_length=8)


class Image(FrozenModel):
    """`key` is `image_idempotency_key`."""

    key: str
    type: str
    alt: str
    file: File
    provider: str


Level = Literal["note", "warn", "block"]


class Finding(FrozenModel):
    """What the quality gate objects to. A `note` does not hold the article; a `warn` is for a person to decide; a
    `block` fails the article.

    `template` and `values` are the message for translation.
    """

    check: str
    level: Level
    message: str
    template: str = ""
    values: dict[str, str] = {}


class QualityReport(FrozenModel):
    """`language` is the detected one, None if it was not recognised. Reviewers do not edit it."""

    model_config = ConfigDict(json_schema_extra={"hidden": True})

    words: int
    language: Language | None
    findings: list[Finding]

    @property
    def blocks(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "block"]

    @property
    def has_warnings(self) -> bool:
        return any(finding.level == "warn" for finding in self.findings)


class Payload(FrozenModel):
    """What is sent to WordPress, with its images as files. `missing_images` are the types of those that failed."""

    title: str
    slug: str
    content: Annotated[str, Field(max_length=MAX_CONTENT_LENGTH)]
    excerpt: str
    language: Language
    categories: list[str]
    tags: list[str]
    meta: Meta
    focus_keyword: str
    images: list[Image]
    missing_images: list[str]


class Published(FrozenModel):
    """The draft in WordPress. `status` is the plugin's `done` or `partial`, or `kept` if a person kept the post.

    Reviewers do not edit it.
    """

    model_config = ConfigDict(json_schema_extra={"hidden": True})

    post_id: int
    job_id: str
    status: str
    revision: int
    edit_url: str
    warnings: list[Any] = []
    missing_images: list[str] = []


class Import(FrozenModel):
    """A CSV file whose lines become articles. `skipped_lines` were refused before it started."""

    file: File
    skipped_lines: list[int] = []


class ImportedLine(FrozenModel):
    """One valid line of a file, counted from 1 with the header. `regenerate` is not part of the article."""

    line: int
    article: ArticleRequest
    regenerate: bool = False
