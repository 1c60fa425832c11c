"""An environment of a test's own, with packages that the tests' environment does not have."""

import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from subprocess import run


def over_this_one(place: Path, packages: Sequence[str]) -> Path:
    """The interpreter of a new environment with these packages, over those of this one."""
    venv.create(place, with_pip=True)
    (site,) = place.glob("lib/python3*/site-packages")
    (site / "of_pyfast.pth").write_text(sysconfig.get_path("purelib"))
    interpreter = place / "bin" / "python"
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    run([*pip, *packages], check=True)
    return interpreter
