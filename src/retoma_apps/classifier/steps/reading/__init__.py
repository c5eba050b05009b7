"""Read the text of untrusted documents within limits: PDF, docx, pictures and plain text.

reading = read_path("file.pdf")     in an isolated step: PDFium and OCR are native code
reading.text, reading.pages
"""

from retoma_apps.classifier.steps.reading.archives import Member, is_one_document, iterate_members
from retoma_apps.classifier.steps.reading.document import Reading, read, read_path
from retoma_apps.classifier.steps.reading.errors import Unreadable
from retoma_apps.classifier.steps.reading.limits import Limits

__all__ = ["Limits", "Member", "Reading", "Unreadable", "is_one_document", "iterate_members", "read", "read_path"]
