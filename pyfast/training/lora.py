"""Low-rank updates of a language model's weights (LoRA, Hu et al. 2022), using peft."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from pyfast.errors import InputError
from pyfast.llm.local import find_folder
from pyfast.llm.transformers import open_model
from pyfast.training.loop import Batches, Devices, Estimate, Point, Schedule, fit

Precision = Literal["float32", "bfloat16"]
"""The precision of the weights that are not trained; trained weights are always in float32"""
TARGETS = ("q_proj", "k_proj", "v_proj")
ALL_PROJECTIONS = (*TARGETS, "o_proj", "gate_proj", "up_proj", "down_proj")
"""The projections of attention and of the MLP (HSEQ, A.3.4)"""


def with_lora(
    model: Any, *, rank: int = 128, alpha: int = 32, dropout: float = 0.05, targets: Sequence[str] = TARGETS
) -> Any:
    """Add new low-rank updates to the layers of a model whose names are in `targets`. Only these updates are
    trained.

    Raises `InputError` if the model changes a token's embedding after the look-up, for example by a scale.
    Training takes a prompt's embeddings directly from the embedding table, and would miss such a change.
    """
    from peft import LoraConfig, get_peft_model

    table = model.get_input_embeddings()
    if type(table) is not torch.nn.Embedding:
        kind = type(table).__name__
        raise InputError(f"{model.name_or_path}: its token embeddings are a {kind}, not an Embedding")
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=list(targets), task_type="CAUSAL_LM"
    )
    return get_peft_model(model, config)


def learning(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the trainable parameters of a model, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def completion_losses(
    model: Any,
    prompts: Sequence[torch.Tensor],
    completions: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Compute the loss of each completion (int64[c]) after its prompt of embeddings [p, hidden]: the sum of its
    tokens' cross-entropies, weighted by `weights` (float32[c]), divided by c. Tokens of the prompts do not count.
    The examples go through the model together.

    Shorter examples are padded at the end. This does not change results, because a causal model's tokens see only
    earlier ones.
    """
    table = model.get_input_embeddings()
    inputs = torch.nn.utils.rnn.pad_sequence(
        [torch.cat([prompt, table(target[:-1])]) for prompt, target in zip(prompts, completions, strict=True)],
        batch_first=True,
    )
    places = [
        torch.arange(len(prompt) - 1, len(prompt) - 1 + len(target), device=inputs.device)
        for prompt, target in zip(prompts, completions, strict=True)
    ]
    kept = torch.cat(places).unique()
    logits = model(inputs_embeds=inputs, logits_to_keep=kept).logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = []
    for row, place, target, weight in zip(logits, places, completions, weights, strict=True):
        own = row[torch.searchsorted(kept, place)]
        losses.append((torch.nn.functional.cross_entropy(own, target, reduction="none") * weight).mean())
    return torch.stack(losses)


def merge_adapter(model_folder: Path, adapter: Path, out: Path) -> None:
    """Merge an adapter into its model, and write the merged model to `out`, for programs that cannot load
    adapters.

    Raises `ModelNotFoundError` if there is no model or no adapter, and `InputError` if the adapter belongs to
    another model, or if `out` exists and is not an empty folder.
    """
    from peft import PeftModel

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} already exists; choose another folder")
    find_folder(str(adapter), "adapter", "adapter_config.json")
    model, tokenizer = open_model(model_folder)
    try:
        changed = PeftModel.from_pretrained(model, adapter)
    except (RuntimeError, ValueError) as error:
        fault = " ".join(str(error).split())
        raise InputError(f"{adapter} is not an adapter for {model_folder}: {fault}") from None
    save_merged(changed, tokenizer, out)


GGUF_NAMES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""The GGUF architecture of each kind of model (`model_type`) whose adapters `write_gguf` can convert"""


def write_gguf(adapter: Path, model_folder: Path, out: Path) -> None:
    """Convert an adapter from peft's format to a GGUF file, which llama.cpp loads together with the model.

    Raises `InputError` if `GGUF_NAMES` lacks the model's kind.
    """
    import gguf
    from safetensors.torch import load_file

    model = json.loads((model_folder / "config.json").read_text(encoding="utf-8"))
    kind = model["model_type"]
    if kind not in GGUF_NAMES:
        known = ", ".join(GGUF_NAMES)
        raise InputError(f"{model_folder}: GGUF supports adapters for {known}, but not for {kind}")
    name = GGUF_NAMES[kind]
    architecture = next(it for it, its_name in gguf.MODEL_ARCH_NAMES.items() if its_name == name)
    names = gguf.get_tensor_name_map(architecture, model["num_hidden_layers"])
    # llama.cpp stores the rows of these projections in another order within each head, for its rotary embedding.
    heads = {"q_proj": model["num_attention_heads"], "k_proj": model.get("num_key_value_heads")}
    writer = gguf.GGUFWriter(out, name)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    alpha = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["lora_alpha"]
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(alpha))
    for key, tensor in load_file(adapter / "adapter_model.safetensors").items():
        layer, _, part = key.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".lora_")
        of_heads = heads.get(layer.rpartition(".")[2]) if name == "llama" and part == "B" else None
        if of_heads:
            tensor = tensor.unflatten(0, (of_heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        own = f"{names.get_name(layer)}.weight.lora_{part.lower()}"
        writer.add_tensor(own, tensor.to(torch.float16).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save_merged(model: Any, tokenizer: Any, folder: Path) -> None:
    """Merge the updates into the model, and write it in the format of transformers, which vLLM reads too.

    After this call, `model` can no longer be used.
    """
    model.merge_and_unload().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


ADAPTER = "adapter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Options for how training is computed. Apart from rounding and dropout, they do not affect the trained
    weights, so you can resume training with other values.
    """

    batch: int = 1
    """The maximum number of examples that go through the model together"""
    precision: Precision = "float32"
    checkpointing: bool = False
    """Whether to recompute the layers' outputs for the gradient instead of storing them. This needs less memory
    and about a third more time"""


PLAIN = Compute()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraRecipe:
    """The size and the dropout of the low-rank updates."""

    lora_rank: int = 16
    lora_alpha: int = 32
    dropout: float = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One training example: the tokens of a prompt (int64[p]) and of the answer that the model learns (int64[c]),
    each with its weight in the loss (float32[c])."""

    prompt: torch.Tensor
    answer: torch.Tensor
    weights: torch.Tensor

    @property
    def tokens(self) -> int:
        """The number of tokens that the model reads: prompt and answer, without the answer's last token."""
        return len(self.prompt) + len(self.answer) - 1


def open_with_lora(
    folder: Path, recipe: LoraRecipe, compute: Compute, seed: int, devices: Devices
) -> tuple[Any, Any]:
    """Open a model with new low-rank updates of all projections, on this process's device. Returns (the model, its
    tokenizer). Raises the same errors as `open_model` and `with_lora`."""
    torch.manual_seed(seed)
    model, tokenizer = open_model(folder, compute.precision)
    if compute.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    sizes = {"rank": recipe.lora_rank, "alpha": recipe.lora_alpha}
    model = with_lora(model, **sizes, dropout=recipe.dropout, targets=ALL_PROJECTIONS)
    return model.train().to(devices.device), tokenizer


def fit_adapter(
    model: Any,
    examples: Sequence[Example],
    out: Path,
    schedule: Schedule,
    described: Mapping[str, Any],
    compute: Compute,
    devices: Devices,
    *,
    stop: Callable[[], bool],
    on_step: Callable[[Point, int], None],
    on_estimate: Callable[[Estimate], None] | None,
) -> list[Point]:
    """Train the updates of a model, or resume training in the folder `out`, and write them to its subfolder
    `adapter` in peft's format, which vLLM loads with the original model. Returns the learning curve, and raises
    the same errors as `fit`.
    """
    curve = fit(
        examples, lambda batch: losses_of(batch, model).sum(), learning(model), out, schedule, described,
        stop=stop, on_step=on_step, batches=Batches(lambda it: it.tokens, compute.batch), devices=devices,
        on_estimate=on_estimate,
    )  # fmt: skip
    if devices.first:
        model.save_pretrained(out / ADAPTER)
    return curve


def losses_of(batch: Sequence[Example], model: Any) -> torch.Tensor:
    """Compute the weighted cross-entropy of each example. Only the tokens of the answer count, not those of the
    prompt (A.3.2 of HSEQ's paper).
    """
    table = model.get_input_embeddings().weight
    prompts = [torch.nn.functional.embedding(it.prompt.to(table.device), table) for it in batch]
    answers = [it.answer.to(table.device) for it in batch]
    return completion_losses(model, prompts, answers, [it.weights.to(table.device) for it in batch])
