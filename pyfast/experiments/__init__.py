"""Measuring a system as a whole: latency under load."""

from pyfast.experiments.latency import Bench, bench

__all__ = ["Bench", "bench"]
