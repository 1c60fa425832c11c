# ruff: noqa: E501
"""Train an adapter (LoRA) of the embedded model on examples, on one GPU, and see what it has learned.

    python train.py --model MODEL.gguf --tokenizer tokenizer.json --data train.jsonl --held held-out.jsonl --out OUT
        [--rank 16] [--rate 1e-3] [--epochs 1] [--seconds 150] [--seed 0]

It stands alone: torch, transformers (the Llama), tokenizers, gguf, safetensors and numpy. The weights are those that
llama.cpp runs, unpacked. OUT gets the adapter in peft's form, curve.jsonl, replies.jsonl and result.json. With one
seed and no limit of time, a device gives one result.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import math
import random
import re
import string
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers.models.llama import modeling_llama

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
END = "<|im_end|>"
FRAMES = {"answer": '{"answer": "', "extract": '{"entity": "'}


def unpacked(path: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """The configuration and the weights of a Llama in a GGUF file, by the names that transformers gives them."""
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import LlamaConfig

    reader = GGUFReader(path)

    def field(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    heads, kv = int(field("attention.head_count")), int(field("attention.head_count_kv"))
    config = LlamaConfig(
        hidden_size=int(field("embedding_length")), intermediate_size=int(field("feed_forward_length")),
        num_hidden_layers=int(field("block_count")), num_attention_heads=heads, num_key_value_heads=kv,
        rms_norm_eps=float(field("attention.layer_norm_rms_epsilon")), max_position_embeddings=int(field("context_length")),
        rope_theta=float(field("rope.freq_base")), tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
    )  # fmt: skip
    config.rope_parameters = {"rope_type": "default", "rope_theta": float(field("rope.freq_base"))}
    weights = {}
    for it in reader.tensors:
        value = torch.from_numpy(np.array(dequantize(it.data, it.tensor_type), dtype=np.float32))
        parts = it.name.split(".")
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):  # llama.cpp interleaves the halves of a head
                rows = heads if parts[2] == "attn_q" else kv
                value = (
                    value.reshape(rows, value.shape[0] // rows // 2, 2, value.shape[1])
                    .swapaxes(1, 2)
                    .reshape(value.shape)
                )
            weights[f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"] = value
        else:
            weights[{"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[parts[0]] + ".weight"] = (
                value
            )
    return config, weights


def open_model(path: Path, device: str) -> Any:
    from transformers import LlamaForCausalLM

    config, weights = unpacked(path)
    config._attn_implementation = "sdpa"
    # One kernel in place of six.
    modeling_llama.LlamaRMSNorm.forward = lambda self, x: nn.functional.rms_norm(
        x, x.shape[-1:], self.weight, self.variance_epsilon
    )
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    model = model.to(device, torch.bfloat16 if device == "cuda" else torch.float32)
    return model.requires_grad_(False).eval()


class Updated(nn.Module):
    """A projection with its update of low rank.

    The update is added to the weights, not to what they give: fewer and shorter passes over the tokens.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.weight = base.weight
        self.scale = alpha / rank
        # In float32 always: in bfloat16 a small step would be lost.
        self.a = nn.Parameter(torch.empty(rank, base.in_features, device=base.weight.device))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, torch.addmm(self.weight, self.b * self.scale, self.a))


def with_updates(model: Any, rank: int, alpha: float) -> dict[str, Updated]:
    updates = {}
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in TARGETS:
            parent, _, last = name.rpartition(".")
            updates[name] = Updated(module, rank, alpha)
            setattr(model.get_submodule(parent), last, updates[name])
    return updates


def save(updates: dict[str, Updated], out: Path, rank: int, alpha: float, heads: tuple[int, int]) -> None:
    """The adapter in the form of peft."""
    tensors = {}
    for name, it in updates.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = it.a.detach().to(torch.float16).cpu().contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = it.b.detach().to(torch.float16).cpu().contiguous()
    save_file(tensors, out / "adapter_model.safetensors", {"format": "pt"})
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none",
        "target_modules": list(TARGETS), "base_model_name_or_path": "SmolLM2-135M-Instruct", "inference_mode": True,
    }  # fmt: skip
    (out / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_gguf(tensors, heads, alpha, out / "adapter.gguf")


def save_gguf(tensors: dict[str, torch.Tensor], heads: tuple[int, int], alpha: float, path: Path) -> None:
    """The adapter as llama.cpp reads it, which has the rows of q and k in another order, a head at a time."""
    from gguf import GGUFWriter

    ours = {long: short for short, long in NAMES.items()}
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(alpha))
    for name, tensor in tensors.items():
        layer, _, part = (
            name.removeprefix("base_model.model.model.layers.").removesuffix(".weight").rpartition(".lora_")
        )
        number, _, projection = layer.partition(".")
        rows = {"attn_q": heads[0], "attn_k": heads[1]}.get(ours[projection])
        if part == "B" and rows:
            tensor = tensor.unflatten(0, (rows, 2, -1)).transpose(1, 2).flatten(0, 2).contiguous()
        writer.add_tensor(f"blk.{number}.{ours[projection]}.weight.lora_{part.lower()}", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rows_of(path: Path) -> list[dict[str, Any]]:
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def prompt_text(messages: list[str]) -> str:
    """As SmolLM2's chat template writes them."""
    roles = ("system", "user")
    return (
        "".join(f"<|im_start|>{role}\n{text}{END}\n" for role, text in zip(roles, messages, strict=True))
        + "<|im_start|>assistant\n"
    )


def encoded(rows: list[dict[str, Any]], tokenizer: Tokenizer) -> list[tuple[list[int], int]]:
    """The tokens of each example, and how many of them are its prompt."""
    prompts = tokenizer.encode_batch([prompt_text(row["messages"]) for row in rows], add_special_tokens=False)
    replies = tokenizer.encode_batch([row["reply"] + END for row in rows], add_special_tokens=False)
    return [(p.ids + r.ids, len(p.ids)) for p, r in zip(prompts, replies, strict=True)]


def batches(examples: list[tuple[list[int], int]], tokens: int, rng: random.Random) -> list[list[int]]:
    """Examples of like length together, the batches in random order."""
    order = sorted(range(len(examples)), key=lambda at: len(examples[at][0]) + rng.uniform(0, 30))
    found: list[list[int]] = [[]]
    longest = 0
    for at in order:
        longest = max(longest, len(examples[at][0]))
        if found[-1] and longest * (len(found[-1]) + 1) > tokens:
            found.append([])
            longest = len(examples[at][0])
        found[-1].append(at)
    rng.shuffle(found)
    return found


def loss_of(model: Any, chosen: list[tuple[list[int], int]], device: str) -> torch.Tensor:
    """Cross-entropy of the replies' tokens; a long reply weighs more than a short one, but not in proportion."""
    size = max(len(ids) for ids, _ in chosen)
    ids = torch.full((len(chosen), size), 2, dtype=torch.long)
    for row, (tokens, _) in enumerate(chosen):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    # Filled up behind, and causal: no token sees what is filled up.
    hidden = model.model(input_ids=ids.to(device), use_cache=False).last_hidden_state
    rows, places, targets, weights = [], [], [], []
    for row, (tokens, first) in enumerate(chosen):
        count = len(tokens) - first
        rows += [row] * count
        places += range(first - 1, len(tokens) - 1)
        targets += tokens[first:]
        # The first tokens of a plan say how many searches it has: all else hangs on them.
        weights += [(4 if at < 8 < count - 12 else 1) / math.sqrt(count) for at in range(count)]
    logits = model.lm_head(hidden[torch.tensor(rows, device=device), torch.tensor(places, device=device)]).float()
    losses = nn.functional.cross_entropy(logits, torch.tensor(targets, device=device), reduction="none")
    weight = torch.tensor(weights, device=device)
    return (losses * weight).sum() / weight.sum()


def train(
    model: Any, updates: dict[str, Updated], examples: list[tuple[list[int], int]], options: Any, out: Path
) -> dict[str, Any]:
    parameters = [value for it in updates.values() for value in (it.a, it.b)]
    optimizer = torch.optim.AdamW(
        parameters, lr=options.rate, weight_decay=0.01, betas=(0.9, 0.99), fused=options.device == "cuda"
    )
    rng = random.Random(options.seed)
    micro = [it for _ in range(options.epochs) for it in batches(examples, options.tokens, rng)]
    steps = [micro[at : at + options.accumulation] for at in range(0, len(micro), options.accumulation)]
    steps = steps[: options.steps]
    started, tokens, step, progress = time.time(), 0, 0, 0.0
    model.train()
    whole = modeling_llama.create_causal_mask
    modeling_llama.create_causal_mask = lambda *given, **named: None  # none: causal, by the fastest kernel
    with (out / "curve.jsonl").open("w") as curve:
        for step, step_batches in enumerate(steps):
            # Where time is limited, the rate falls to 0 by the end of the time.
            progress = step / len(steps)
            if options.seconds:
                progress = max(progress, (time.time() - started) / options.seconds)
            if progress >= 1:
                break
            rate = options.rate * min(1.0, (step + 1) / options.warmup) * (1 - progress)
            for group in optimizer.param_groups:
                group["lr"] = rate
            total = 0.0
            for places in step_batches:
                chosen = [examples[at] for at in places]
                with torch.autocast(options.device, torch.bfloat16, enabled=options.bf16):
                    loss = loss_of(model, chosen, options.device) / len(step_batches)
                loss.backward()
                total = total + loss.detach()
                tokens += sum(len(ids) for ids, _ in chosen)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 10 == 0:
                point = {
                    "step": step,
                    "of": len(steps),
                    "loss": round(float(total), 4),
                    "rate": rate,
                    "tokens": tokens,
                    "seconds": round(time.time() - started, 1),
                }
                curve.write(json.dumps(point) + "\n")
                if step % 50 == 0:
                    print(options.name, point, flush=True)
    model.eval()
    modeling_llama.create_causal_mask = whole
    if options.device == "cuda":
        torch.cuda.synchronize()
        print(options.name, "memory", torch.cuda.max_memory_allocated() >> 20, "MiB", flush=True)
    seconds = time.time() - started
    return {
        "steps": step + 1,
        "of": len(steps),
        "tokens": tokens,
        "seconds": round(seconds, 1),
        "tokens_a_second": round(tokens / seconds),
    }


def normalised(text: str) -> str:
    text = "".join(c for c in str(text).lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(said: str, gold: str) -> float:
    one, other = normalised(said).split(), normalised(gold).split()
    same = sum((Counter(one) & Counter(other)).values())
    return 2 * same / (len(one) + len(other)) if same else float(one == other)


def said_in(reply: str) -> str:
    """What a reply says, without its frame."""
    try:
        fields = json.loads(reply)
        for name in ("answer", "entity", "answers", "query"):
            if name in fields:
                return str(fields[name])
    except (ValueError, TypeError, AttributeError):
        pass
    return reply


@torch.no_grad()
def generated(model: Any, prompts: list[list[int]], most: int, device: str, batch: int = 64) -> list[list[int]]:
    """Greedy continuations, in batches of like length."""
    order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    replies: list[list[int]] = [[] for _ in prompts]
    for at in range(0, len(order), batch):
        places = order[at : at + batch]
        size = max(len(prompts[it]) for it in places)
        ids = torch.full((len(places), size), 2, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, it in enumerate(places):
            ids[row, size - len(prompts[it]) :] = torch.tensor(prompts[it])
            mask[row, size - len(prompts[it]) :] = 1
        out = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=most,
            do_sample=False,
            eos_token_id=2,
            pad_token_id=2,
        )
        for row, it in enumerate(places):
            tokens = out[row, size:].tolist()
            replies[it] = tokens[: tokens.index(2)] if 2 in tokens else tokens
    return replies


def measure(
    model: Any, rows: list[dict[str, Any]], tokenizer: Tokenizer, options: Any, out: Path
) -> dict[str, Any]:
    """Exact match and F1 by kind, against the teacher's replies or, where a row has `answers`, against these."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with (out / "replies.jsonl").open("w", encoding="utf-8") as file:
        for long in (False, True):
            some = [row for row in rows if (row["name"] in ("plan", "guide", "select")) is long]
            # The frame of a reply of one field is given, as constrained decoding gives it.
            frames = [FRAMES.get(row["name"], "") for row in some]
            texts = [prompt_text(row["messages"]) + frame for row, frame in zip(some, frames, strict=True)]
            prompts = [p.ids for p in tokenizer.encode_batch(texts, add_special_tokens=False)]
            with torch.autocast(options.device, torch.bfloat16, enabled=options.bf16):
                replies = generated(model, prompts, 160 if long else 40, options.device) if some else []
            for row, frame, ids in zip(some, frames, replies, strict=True):
                reply = tokenizer.decode(ids, skip_special_tokens=True)
                if frame:
                    reply = f"{frame}{reply.partition(chr(34))[0].strip()}{chr(34)}}}"
                said = said_in(reply)
                golds = row.get("answers") or [said_in(row["reply"])]
                em = float(any(normalised(said) == normalised(gold) for gold in golds))
                best = max(f1(said, gold) for gold in golds)
                found[f"{row['kind']} {row['name']}"].append((em, best))
                file.write(
                    json.dumps(
                        {**{k: v for k, v in row.items() if k != "messages"}, "said": reply}, ensure_ascii=False
                    )
                    + "\n"
                )
    return {
        kind: {
            "n": len(pairs),
            "em": round(sum(em for em, _ in pairs) / len(pairs), 4),
            "f1": round(sum(f for _, f in pairs) / len(pairs), 4),
        }
        for kind, pairs in sorted(found.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "tokenizer", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="What to train on. Without it, nothing is trained.")
    parser.add_argument("--held", type=Path, help="What to measure on afterwards.")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--alpha", type=float, help="Twice the rank where nothing is said.")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="End after so many.")
    parser.add_argument("--warmup", type=int, default=20, help="Steps.")
    parser.add_argument("--tokens", type=int, default=32768, help="Tokens of a batch, with what is filled up.")
    parser.add_argument("--accumulation", type=int, default=1, help="Batches of a step.")
    parser.add_argument("--seconds", type=float, default=0, help="End within this time; 0: no limit.")
    parser.add_argument("--longest", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="Only the first examples, for a test.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.bf16 = options.device == "cuda"
    options.alpha = options.alpha or 2 * options.rank
    options.name = options.out.name
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    began = time.time()
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    model = open_model(options.model, options.device)
    result: dict[str, Any] = {"options": {key: str(value) for key, value in vars(options).items()}}
    if options.data:
        updates = with_updates(model, options.rank, options.alpha)
        examples = [
            it
            for it in encoded(rows_of(options.data)[: options.limit], tokenizer)
            if len(it[0]) <= options.longest
        ]
        result |= {
            "examples": len(examples),
            "tokens_of_data": sum(len(ids) for ids, _ in examples),
            "ready": round(time.time() - began, 1),
        }
        print(options.name, result["examples"], result["tokens_of_data"], flush=True)
        result["training"] = train(model, updates, examples, options, options.out)
        heads = model.config.num_attention_heads, model.config.num_key_value_heads
        save(updates, options.out, options.rank, options.alpha, heads)
    (options.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    if options.held:
        since = time.time()
        result["measured"] = measure(
            model, rows_of(options.held)[: options.limit], tokenizer, options, options.out
        )
        result["measuring_seconds"] = round(time.time() - since, 1)
    (options.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(options.name, json.dumps(result.get("training")), json.dumps(result.get("measured")), flush=True)


if __name__ == "__main__":
    main()
