"""Run BERT models in plain torch. Most embedding models are BERT models. A model loads several seconds faster
than with sentence-transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyfast.ops.arrays import Float32

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHTS, _TOKENIZER = "model.safetensors", "tokenizer.json"
_CHAINS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_POOLED = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
_SINCE = {"hidden_act": "gelu", "position_embedding_type": "absolute", "model_type": "bert"}


def can_read(folder: Path) -> bool:
    """Whether `Bert` can load the model in a folder with the same results as sentence-transformers."""
    if not (folder / _WEIGHTS).is_file() or not (folder / _TOKENIZER).is_file():
        return False
    modules = _json(folder / "modules.json")
    config, sentence = _json(folder / "config.json"), _json(folder / "sentence_bert_config.json")
    return (
        isinstance(modules, list)
        and [str(module.get("type")).rpartition(".")[2] for module in modules] in _CHAINS
        and all(config.get(name, value) == value for name, value in _SINCE.items())
        and not sentence.get("do_lower_case")
        and _pooling(folder) is not None
        and not _json(folder / "config_sentence_transformers.json").get("default_prompt_name")
        and _are_float32(folder / _WEIGHTS)
    )


def _are_float32(path: Path) -> bool:
    from safetensors import safe_open

    with safe_open(path, "np") as weights:
        return {weights.get_slice(name).get_dtype() for name in weights.keys()} <= {"F32", "I64"}  # noqa: SIM118


def _pooling(folder: Path) -> str | None:
    """Return how the model in a folder makes the vector of a text from the vectors of its tokens: `mean`
    (their mean) or `first` (the first vector). None: the model does it in another way, which `Bert` does not
    support."""
    given = _json(folder / "1_Pooling" / "config.json")
    chosen = [name for name, value in given.items() if name.startswith("pooling_mode") and value]
    return _POOLED.get(chosen[0]) if len(chosen) == 1 else None


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.is_file() else {}


class Bert:
    """A BERT model, from a folder that `can_read` accepts."""

    def __init__(self, folder: Path, device: str) -> None:
        import torch
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        config = _json(folder / "config.json")
        self.device = torch.device(device)
        self.mixes = True
        self.dimensions: int = config["hidden_size"]
        self._heads: int = config["num_attention_heads"]
        self._eps: float = config.get("layer_norm_eps", 1e-12)
        self._mean = _pooling(folder) == "mean"
        self._weights = {
            name.removeprefix("bert."): value.to(self.device)
            for name, value in load_file(folder / _WEIGHTS).items()
        }
        self._layers = [self._joined(f"encoder.layer.{i}.") for i in range(config["num_hidden_layers"])]
        self._tokenizer: Any = Tokenizer.from_file(str(folder / _TOKENIZER))
        self._tokenizer.no_padding()
        longest = _json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._tokenizer.enable_truncation(longest or config["max_position_embeddings"])

    def _joined(self, layer: str) -> tuple[str, Tensor, Tensor]:
        """Join the weights of query, key and value in a layer, so that one product computes all three.

        `layer` is the beginning of the names of these weights, such as `encoder.layer.0.`. Returns (`layer`,
        the joined weight, the joined bias).
        """
        import torch

        parts = [
            [self._weights.pop(f"{layer}attention.self.{name}.{part}") for name in ("query", "key", "value")]
            for part in ("weight", "bias")
        ]
        return layer, torch.cat(parts[0]), torch.cat(parts[1])

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text. Tokens beyond the model's maximum length are left out."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def vectors(self, tokens: Sequence[Sequence[int]]) -> Float32:
        """Compute the vectors of texts, each of length 1, from the token ids of each text: float32[texts,
        dimensions].

        The tokens of all texts are the rows of one matrix. Only the attention is computed for each text
        separately, in one call for consecutive texts with the same number of tokens. So the method is fastest
        if the texts are sorted by their number of tokens.
        """
        import torch
        from torch.nn import functional

        runs = [(length, len(list(run))) for length, run in groupby(map(len, tokens))]
        ends = list(accumulate((length * count for length, count in runs), initial=0))
        spans = [(begin, end, length) for (begin, end), (length, _) in zip(pairwise(ends), runs, strict=True)]
        places = [np.tile(np.arange(length), count) for length, count in runs]
        with torch.inference_mode():
            ids = torch.tensor(list(chain.from_iterable(tokens)), device=self.device)
            at, weights = torch.from_numpy(np.concatenate(places)).to(self.device), self._weights
            x = weights["embeddings.word_embeddings.weight"][ids]
            x = x + weights["embeddings.token_type_embeddings.weight"][0]
            x = x + weights["embeddings.position_embeddings.weight"][at]
            x = self._normed(x, "embeddings.LayerNorm")
            seen = torch.empty_like(x)
            for layer, weight, bias in self._layers:
                parts = functional.linear(x, weight, bias)
                for begin, end, length in spans:
                    some = parts[begin:end].view(-1, length, 3, self._heads, x.shape[1] // self._heads)
                    query, key, value = some.permute(2, 0, 3, 1, 4)
                    found = functional.scaled_dot_product_attention(query, key, value)
                    seen[begin:end] = found.transpose(1, 2).reshape(end - begin, -1)
                attended = self._linear(seen, f"{layer}attention.output.dense")
                x = self._normed(x + attended, f"{layer}attention.output.LayerNorm")
                wide = functional.gelu(self._linear(x, f"{layer}intermediate.dense"))
                x = self._normed(x + self._linear(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm")
            by_text = [x[begin:end].view(-1, length, x.shape[1]) for begin, end, length in spans]
            pooled = torch.cat([each.mean(1) if self._mean else each[:, 0] for each in by_text])
            vectors: Float32 = functional.normalize(pooled, dim=1).cpu().numpy()
        return vectors

    def _linear(self, x: Tensor, name: str) -> Tensor:
        from torch.nn import functional

        return functional.linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _normed(self, x: Tensor, name: str) -> Tensor:
        from torch.nn import functional

        weight = self._weights[f"{name}.weight"]
        return functional.layer_norm(x, weight.shape, weight, self._weights[f"{name}.bias"], self._eps)
