"""Measure whole systems: the quality of their answers, in tables of data sets, systems and models
(`experiment`), and their latency under load (`bench`)."""

from pyfast.api.experiments.cells import Experiment, experiment
from pyfast.api.experiments.latency import Bench, bench

__all__ = ["Bench", "Experiment", "bench", "experiment"]
