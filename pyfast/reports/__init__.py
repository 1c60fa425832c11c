"""Show runs as web pages and as text."""

from pyfast.reports.as_text import show, wrong_questions
from pyfast.reports.writing import report, view

__all__ = ["report", "show", "view", "wrong_questions"]
