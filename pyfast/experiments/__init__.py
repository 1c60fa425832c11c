"""Measure whole systems: in tables of data sets, systems and models, and by their latency under load."""

from pyfast.experiments.cells import Experiment, experiment
from pyfast.experiments.latency import Bench, bench

__all__ = ["Bench", "Experiment", "bench", "experiment"]
