"""What is wrong with a kernel."""

from __future__ import annotations


class Fault(Exception):
    """A kernel does what CUDA leaves undefined; says what, and in which line."""
