"""Messages of the pages that are chosen at run time: names of states and steps, fields, notices and findings."""

from __future__ import annotations

from pathlib import Path

from retoma.translations import CATALOGUES, N_, NP_, Translator
from retoma_apps.autowriter.models import Finding
from retoma_apps.autowriter.steps.csv_file import LineError

LOCALE = Path(__file__).parents[1] / "locale"
STATE_NAMES = {
    "pending": NP_("article state", "Pending"),
    "running": NP_("article state", "Running"),
    "needs_review": NP_("article state", "Needs review"),
    "failed": NP_("article state", "Failed"),
    "done": NP_("article state", "Draft ready"),
    "canceled": NP_("article state", "Canceled"),
}
# Labels of the steps on all pages.
STEP_LABELS = {
    "csv_parsed": N_("Line read"),
    "lines_found": N_("File read"),
    "article_requested": N_("Article requested"),
    "draft_marked": N_("Draft marked as rejected"),
    "brief_created": N_("Brief"),
    "outline_created": N_("Outline"),
    "keywords_resolved": N_("Keywords"),
    "meta_created": N_("Meta data"),
    "title_slug_created": N_("Title and slug"),
    "headings_created": N_("Headings"),
    "content_created": N_("Body"),
    "tags_created": N_("Tags"),
    "faq_created": N_("Questions and answers"),
    "internal_links_created": N_("Internal links"),
    "image_prompts_created": N_("Image prompts"),
    "images_resolved": N_("Images"),
    "quality_checked": N_("Quality checks"),
    "quality_gate_passed": N_("Quality review"),
    "payload_ready": N_("Post for WordPress"),
    "published_wp": N_("Publication in WordPress"),
    "image_review": N_("Review of missing images"),
}
FIELD_LABELS = {
    "blog_id": N_("Blog"),
    "theme": N_("Theme"),
    "objective": N_("Objective"),
    "language": N_("Language"),
    "word_count": N_("Words"),
    "keyword": N_("Focus keyword"),
    "category": N_("Category"),
    "audience": N_("Audience"),
    "tone": N_("Tone"),
    "id": N_("Id"),
    "name": N_("Name"),
    "site": N_("WordPress site"),
    "site_id": N_("Number within the network"),
    "categories": N_("Categories"),
}
FIELD_HINTS = {
    "blog_id": N_("The blog that gets the draft."),
    "theme": N_("What the article is about."),
    "objective": N_("What readers should get from it."),
    "language": N_("The language of the text."),
    "word_count": N_("From 200 to 5,000."),
    "keyword": N_("Empty: the keywords API decides."),
    "category": N_("Empty: the categories of the blog."),
    "audience": N_("Optional."),
    "tone": N_("Optional, for example: plain and friendly."),
    "id": N_("As CSV files name it. It cannot be changed later."),
    "name": N_("As people call it."),
    "site": N_("Its name in the WORDPRESS_* variables. Empty if there is only one site."),
    "site_id": N_("Only for a site of a WordPress network."),
    "categories": N_("One per line, for articles without a category."),
}
FIELD_ERRORS = {
    "blog_id": N_("Choose one of the blogs."),
    "theme": N_("Describe the theme in 3 to 300 characters."),
    "objective": N_("Describe the objective in 3 to 500 characters."),
    "language": N_("Choose one of the languages."),
    "word_count": N_("Enter a whole number from 200 to 5,000."),
    "keyword": N_("At most 80 characters."),
    "category": N_("At most 100 characters."),
    "audience": N_("At most 200 characters."),
    "tone": N_("At most 200 characters."),
    "id": N_("Use up to 100 Latin letters, digits, dots, hyphens and underscores, starting with a letter or digit."),
    "name": N_("Enter a name of 1 to 200 characters."),
    "site": N_("At most 100 characters."),
    "site_id": N_("Enter a whole number from 1 on, or leave it empty."),
    "categories": N_("At most 20 categories of up to 100 characters each."),
}
OFFLINE_SENTENCES = {
    "llm": N_("Only a few bundled themes can be written"),
    "keywords": N_("Keywords are the words of the theme"),
    "images": N_("Images are shapes drawn here"),
    "open_blog": N_("Drafts are saved to a folder"),
}
LANGUAGE_NAMES = {
    "pt-BR": N_("Brazilian Portuguese"),
    "en": N_("English"),
    "es": N_("Spanish"),
}
# The outcome of an action, by the name that the address of the next page carries. Retoma has others.
NOTICES = {
    "requested": N_("The article has been requested."),
    "exists": N_("This article was requested before: here it is. Nothing was started."),
    "canceled": N_("The article is being cancelled."),
    "import_canceled": N_("The import is being cancelled, with the articles that it started."),
    "import_started": N_("The import has started."),
    "refreshed": N_("WordPress was asked for its events."),
    "unreachable": N_("WordPress did not answer. Try again later."),
    "saved": N_("The blog has been saved."),
}
METRIC_NAMES = {
    "jobs_per_hour": N_("Articles per hour"),
    "failure_rate": N_("Failure rate"),
    "retry_rate": N_("Retry rate"),
    "mean_cost": N_("Mean cost"),
}
CHECK_NAMES = {
    "length": NP_("quality check", "Length"),
    "language": NP_("quality check", "Language"),
    "headings": NP_("quality check", "Headings"),
    "sections": NP_("quality check", "Sections"),
    "keyword": NP_("quality check", "Keyword"),
    "meta": NP_("quality check", "Meta data"),
    "links": NP_("quality check", "Links"),
    "repetition": NP_("quality check", "Repetition"),
    "facts": NP_("quality check", "Facts"),
    "unverified": NP_("quality check", "Sources not verified"),
    "faq": NP_("quality check", "Questions and answers"),
}
LEVEL_NAMES = {
    "note": NP_("level of a finding", "Note"),
    "warn": NP_("level of a finding", "Warning"),
    "block": NP_("level of a finding", "Blocks the article"),
}
EVENT_NAMES = {
    "media_ok": N_("Image uploaded"),
    "media_failed": N_("Image not uploaded"),
    "seo_applied": N_("SEO data applied"),
    "done": N_("Publication finished"),
}
# What the codes of `steps/error_codes.py` mean for people: what happened, and what to do.
CODE_SENTENCES = {
    "CSV_INVALID": N_("The line cannot be read. Correct the file."),
    "BLOG_NOT_FOUND": N_("The blog does not exist. Create it, or correct its id, then resume."),
    "LLM_TIMEOUT": N_("The language model did not answer in time, also after retries. Resume later."),
    "LLM_INVALID_JSON": N_("The language model's answer could not be used, also after retries. Resume later."),
    "LLM_CONTENT_FILTERED": N_(
        "The language model refused to write about this. Change the request, or use another model."
    ),
    "LLM_TOO_LONG": N_(
        "The text is too long for the language model. Use a model that accepts longer texts, then rerun."
    ),
    "LLM_NO_SUCH_MODEL": N_("The provider does not have this model. Set AUTOWRITER_MODEL to another one, then resume."),
    "LLM_BAD_REQUEST": N_("The language model's provider rejected our request. Report the technical details."),
    "KEYWORDS_API_FAIL": N_("The keywords API did not answer, also after retries. Resume later."),
    "IMAGE_API_FAIL": N_("An image could not be made. The draft was published without it; decide how to continue."),
    "IMAGE_CONTENT_FILTERED": N_("The image service refused the image. The draft was published without it."),
    "IMAGE_BAD_REQUEST": N_("The image service rejected our request. The draft was published without the image."),
    "KEYWORDS_BAD_REQUEST": N_("The keywords API rejected our request. Report the technical details."),
    "QUALITY_GATE_FAIL": N_("The quality checks object to the article. Rerun a part, or decide about the warnings."),
    "WP_PUBLISH_FAIL": N_("WordPress did not accept the article, also after retries. Check the site, then resume."),
    "TIMEOUT": N_("A step took too long, also after retries. Resume later."),
    "BUDGET": N_("The step would exceed a budget of the blog. Raise the budget, or decide the review."),
    "COST_LIMIT": N_("A step reached its cost limit. Find out why it is so expensive, then rerun it."),
    "TOTAL_TIMEOUT": N_("A step reached its deadline over all attempts. Check its providers, then rerun it."),
    "ERROR": N_("A step failed unexpectedly, also after retries. Report the technical details."),
    "QUARANTINED": N_("A step stopped three workers and is not tried again. Report it, then resume."),
    "WP_REJECTED": N_("The server of the site rejected the article before the plugin saw it. Check the site."),
    "NO_MODEL": N_("No language model is configured for this theme. Set its API key, then resume."),
    "AUTH_FAILED": N_("WordPress does not know our credentials. Set WORDPRESS_SECRET to a secret of the site."),
    "HMAC_INVALID": N_("WordPress rejected our signature. Check the secret, and the clocks of both servers."),
    "RATE_LIMIT": N_("The site asked us to wait. It continues automatically."),
    "BLOG_SWITCH_FAIL": N_("The network has no such site. Correct the blog's number within the network."),
    "CATEGORY_CREATE_FAIL": N_("WordPress could not create a category. Resume: the existing draft is used."),
    "MEDIA_UPLOAD_FAIL": N_("WordPress could not store an image. Review the draft without it."),
    "SEO_APPLY_FAIL": N_("WordPress could not store the SEO data. Resume: the existing draft is used."),
    "PUBLISH_FAILED": N_("WordPress could not store the article. Resume: the existing draft is used."),
    "IDEMPOTENCY_DUPLICATE": N_("WordPress already has another text for this revision. Rerun the article."),
    "STALE_REVISION": N_("A newer revision is already published. There is nothing to do."),
    "POST_EDITED": N_("Somebody edited the post in WordPress. Decide whether to overwrite it."),
    "POST_DELETED": N_("Somebody deleted the post in WordPress. Decide whether to create it again."),
    "JOB_NOT_FOUND": N_("WordPress does not know this article. Publish it first."),
    "INVALID_REQUEST": N_("WordPress does not accept the article. The message names the field."),
    "BODY_TOO_LARGE": N_("The article with its images is too large for the site. Raise PHP's post_max_size."),
}
UNKNOWN_CODE = N_("An unexpected error. The technical details show its cause.")
PART_NAMES = {
    "title": N_("Title and slug"),
    "meta": N_("Meta data"),
    "headings": N_("Headings"),
    "body": N_("Body"),
    "faq": N_("Questions and answers"),
}


def describe_code(translator: Translator, code: str) -> str:
    return translator.gettext(CODE_SENTENCES.get(code, UNKNOWN_CODE))


def describe_finding(translator: Translator, finding: Finding) -> str:
    """Return what a quality check found. Findings of earlier versions are English."""
    return translator.gettext(finding.template, **finding.values) if finding.template else finding.message


def describe_line_error(translator: Translator, error: LineError) -> str:
    """Return what is wrong with a line of a file."""
    if error.fields:
        return " ".join(f"{name}: {translator.gettext(FIELD_ERRORS[name])}" for name in error.fields)
    return translator.gettext(error.template, **error.values)


def create_translator(language: str) -> Translator:
    """Return a translator for use outside a page."""
    return Translator(language, [LOCALE, CATALOGUES])
