"""Check that a system meets the guarantees that pyfast gives for every system: see `check_system`."""

from pyfast.api.conformance.checks import CheckResult, check_system

__all__ = ["CheckResult", "check_system"]
