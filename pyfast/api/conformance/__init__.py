"""Check that a system keeps the promises that pyfast makes for every system: see `check_system`."""

from pyfast.api.conformance.checks import CheckResult, check_system

__all__ = ["CheckResult", "check_system"]
