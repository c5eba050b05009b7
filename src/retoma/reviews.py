"""What applications need to decide reviews and to use the feedback of reviewers."""

from retoma.define.rejection import Rejection
from retoma.define.review import Comment, Feedback
from retoma.engine.reviews import Decision

__all__ = ["Comment", "Decision", "Feedback", "Rejection"]
