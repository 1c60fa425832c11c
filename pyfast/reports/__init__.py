"""Runs as pages to look at."""

from pyfast.reports.writing import report

__all__ = ["report"]
