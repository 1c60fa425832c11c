"""The images in `containers`. They are not built here, but what they install is checked."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("image", ["cpu", "cuda"])
def test_an_image_can_serve(image: str) -> None:
    text = (ROOT / "containers" / f"{image}.Dockerfile").read_text()
    (extras,) = re.findall(r"pyfast_qa-\*\.whl\)\[(.*?)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= known.keys() and "server" in extras.split(",")
    assert f"containers/{image}.Dockerfile" in (ROOT / "docs" / "howto" / "serving.md").read_text()
