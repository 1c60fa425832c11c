"""Show runs as web pages and as text."""

from pyfast.reports.pages import report, view
from pyfast.reports.text_report import show, wrong_questions

__all__ = ["report", "show", "view", "wrong_questions"]
