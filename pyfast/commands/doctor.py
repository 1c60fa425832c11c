"""`pyfast doctor`."""

from __future__ import annotations

from pyfast.commands.terminal import console


def doctor() -> None:
    """Show how pyfast was built, what this machine has, and on which device each op runs."""
    from rich.table import Table

    from pyfast.api.environment import describe_environment

    environment, screen = describe_environment(), console(stderr=False)
    machine = f"{environment.machine}, {environment.cores} cores, {environment.instructions}"
    print(f"pyfast {environment.pyfast}, Python {environment.python}, {machine}")
    print(f"GPU ops: {'built' if environment.has_gpu_ops else 'not built'}")
    print(f"GPU: {environment.gpu_problem or '; '.join(environment.gpus)}")
    packages = Table("package", "version", "for")
    for package in environment.packages:
        packages.add_row(package.name, package.version or "not installed", package.use)
    screen.print(packages)
    ops = Table("op", "arrays on the CPU", "arrays on a GPU")
    for op, on_gpu in environment.ops.items():
        ops.add_row(op, "cpu", "cuda" if on_gpu else "refused")
    screen.print(ops)
