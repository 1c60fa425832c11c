"""Builds the wheel: the Python package, and `pyfast._native` through CMake. All else is in pyproject.toml."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import distribution, version
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# Compiled in from another project, and so named in every wheel. The C++ runtime is the machine's own.
LINKED_IN = {"pybind11": "BSD-3-Clause"}


class CMakeBuild(build_ext):
    """One extension, built by CMake; `CMAKE_ARGS` and `CMAKE_BUILD_PARALLEL_LEVEL` are honoured.

    The build folder is kept, one for each configuration: the next build compiles only what has changed.
    """

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        options = [
            "-DPYFAST_PYTHON=ON",
            f"-DPython_EXECUTABLE={sys.executable}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]
        compilers = [os.environ.get(name, "") for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "ARCHFLAGS")]
        told = json.dumps([options, compilers, sys.version, version("pybind11")])
        build = ROOT / "build" / f"native-{sha256(told.encode()).hexdigest()[:12]}"
        build.mkdir(parents=True, exist_ok=True)
        # pip builds in an environment whose path is new each time: headers there would be new to every source.
        headers = build / "pybind11"
        if not headers.exists():
            shutil.copytree(Path(pybind11.__file__).parent, headers)
        place = ["-S", str(ROOT), "-B", str(build), f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={build / 'module'}"]
        found = f"-Dpybind11_DIR={headers / 'share' / 'cmake' / 'pybind11'}"
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.run(["cmake", *place, found, *options], check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "_native", "-j", jobs], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}")  # a process that has the old one mapped keeps it whole
        shutil.copy2(next((build / "module").glob(f"_native*{target.suffix}")), aside)
        aside.replace(target)


class Wheel(bdist_wheel):
    """A wheel with the licences of what is linked into it, and a bill of materials (CycloneDX)."""

    def write_wheelfile(self, wheelfile_base: str, *args: object, **kwargs: object) -> None:
        super().write_wheelfile(wheelfile_base, *args, **kwargs)
        parts = []
        for name, licence in LINKED_IN.items():
            for file in distribution(name).files or ():
                if file.name.upper().startswith("LICENSE"):
                    folder = Path(wheelfile_base) / "licenses" / name
                    folder.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file.locate(), folder)
            parts.append(
                {
                    "type": "library",
                    "name": name,
                    "version": version(name),
                    "purl": f"pkg:pypi/{name}@{version(name)}",
                    "licenses": [{"license": {"id": licence}}],
                    "scope": "required",
                }
            )
        own = self.distribution
        product = {
            "type": "library",
            "name": own.get_name(),
            "version": own.get_version(),
            "purl": f"pkg:pypi/{own.get_name()}@{own.get_version()}",
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": product},
            "components": parts,
        }
        boms = Path(wheelfile_base) / "sboms"
        boms.mkdir(exist_ok=True)
        (boms / "pyfast.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


setup(
    ext_modules=[Extension("pyfast._native", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Wheel},
)
