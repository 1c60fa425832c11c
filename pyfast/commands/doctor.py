"""`pyfast doctor`."""

from __future__ import annotations

from pyfast.commands.terminal import console


def doctor() -> None:
    """Show what was built, what this machine has, and where each op would run."""
    from rich.table import Table

    from pyfast.api.environment import describe_environment

    found, screen = describe_environment(), console(stderr=False)
    print(f"pyfast {found.pyfast}, Python {found.python}, {found.machine}, {found.cores} cores")
    print(f"GPU ops: {'built' if found.has_gpu_ops else 'not built'}")
    print(f"GPU: {found.gpu_problem or '; '.join(found.gpus)}")
    packages = Table("package", "version", "for")
    for package in found.packages:
        packages.add_row(package.name, package.version or "not installed", package.use)
    screen.print(packages)
    ops = Table("op", "arrays on the CPU", "arrays on a GPU")
    for op, on_gpu in found.ops.items():
        ops.add_row(op, "cpu", "cuda" if on_gpu else "refused")
    screen.print(ops)
