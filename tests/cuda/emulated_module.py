"""The bindings of the ops on a GPU as a module, linked with the emulator."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pybind11
from builds import HERE, ROOT, SOURCES, compile_all, compile_core, run


def build_module(folder: Path, objects: Sequence[Path] = ()) -> ModuleType:
    """The module, built in the folder. `objects`: the emulator and the ops, if they are compiled already."""
    includes = [pybind11.get_include(), sysconfig.get_path("include"), ROOT / "bindings", ROOT / "bindings/cuda"]
    flags = ["-fvisibility=hidden", *(word for include in includes for word in ("-I", str(include)))]
    sources = [*(ROOT / "bindings/cuda").glob("*.cpp"), HERE / "driver" / "module.cpp"]
    made = compile_all([(source, flags) for source in sources], folder / "bindings")
    if not objects:
        objects = [
            *compile_core("plain", folder / "core"),
            *compile_all([(source, []) for source in SOURCES], folder / "ops"),
        ]
    path = folder / f"emulated_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    run("g++", "-shared", *made, *objects, "-o", path)
    spec = importlib.util.spec_from_file_location("emulated_native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
