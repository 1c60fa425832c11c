"""Convert published data sets into corpus, questions and gold answers. There is one file for each layout."""

from pyfast.evaluation.data_sets.convert import Converted, convert, names

__all__ = ["Converted", "convert", "names"]
