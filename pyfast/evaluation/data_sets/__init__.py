"""Convert published data sets into corpus, questions and gold answers. Sets of similar layouts share a
file."""

from pyfast.evaluation.data_sets.convert import Converted, convert, names

__all__ = ["Converted", "convert", "names"]
