"""Published data sets as corpus, questions and gold: one file for each layout."""

from pyfast.evaluation.data_sets.convert import Converted, convert, names

__all__ = ["Converted", "convert", "names"]
