"""The options that several functions share, as frozen dataclasses: `RunOptions`, `Sampling`, `Cluster` and others.

A field here is the single source of an option's name, type, default and meaning (the first paragraph of the
docstring below it). API functions take these objects, the command line derives its options from the fields, and
`read_options` reads the objects from a TOML file.
"""

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import zip_longest
from math import inf
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

from pyfast.errors import InputError, did_you_mean
from pyfast.utils.extras import explained

T = TypeVar("T")
FollowUps = Literal["off", "rewrite", "resolve"]
"""What to do with follow-up questions in a conversation if the system answers only single questions. rewrite: the
LLM rewrites each question so that it can be understood on its own. resolve: the LLM adds the names that the
question leaves out. off: leave the questions unchanged."""
Sync = Literal["normal", "full"]
Tokenizer = Literal["words", "characters"]
StopWords = Literal["english", "none"]
Accents = Literal["fold", "keep"]
Documents = Literal["own", "all"]
"""own: for a question with the field `documents`, only these documents are searched. all: the whole index is
searched for every question."""


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line reads an option whose type alone does not determine this. The type of its field is then
    `Annotated[TYPE, Option(...)]`."""

    min: float | None = None
    """The smallest valid number"""
    max: float | None = None
    """The largest number that the command line accepts"""
    flag: str = ""
    """The option's name on the command line. Empty: the field's name"""
    typed: Any = None
    """The option's type on the command line. None: the field's type"""
    shown: Any = None
    """The option's default on the command line. None: the field's default"""
    read: str = ""
    """The reader in `pyfast.commands.arguments` that turns the command line's strings into the value"""

    def __repr__(self) -> str:
        return "Option(...)"  # so that signatures stay readable


def told(hint: Any) -> tuple[Any, Option]:
    """Return (the type, the `Option`) of an option, given its type hint."""
    of, about = get_args(hint) if get_origin(hint) is Annotated else (hint, Option())
    return of, about


def meanings(kind: type[Any]) -> dict[str, str]:
    """Return the meaning of each option of a dataclass: the docstring below its field, or below the name of its
    type. The command line shows the first paragraph."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):  # without `object`
        texts = _texts(base.__module__)
        found |= {name: text for (owner, name), text in texts.items() if owner == base.__name__}
    return found


@cache
def _texts(module: str) -> dict[tuple[str, str], str]:
    """Return the docstring below each name in a module, keyed by (class name, name)."""
    content = ast.parse(inspect.getsource(sys.modules[module])).body
    texts: dict[tuple[str, str], str] = {}
    bodies = [("", content), *((one.name, one.body) for one in content if isinstance(one, ast.ClassDef))]
    for owner, body in bodies:
        for named, below in zip_longest(body, body[1:]):
            match named, below:
                case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)), ast.Expr(
                    ast.Constant(str(text))
                ):
                    texts[owner, name] = inspect.cleandoc(text)
                case ast.AnnAssign(target=ast.Name(name), annotation=ast.Name(of)), _ if ("", of) in texts:
                    texts[owner, name] = texts["", of]
    return texts


@dataclass(frozen=True, slots=True)
class Options:
    """Several options that belong together. Their values are checked when the object is created."""

    TABLE: ClassVar[str] = ""
    """The table of a TOML file that contains these options. Empty: they are at the top level"""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is not valid."""
        for one in fields(self):
            (of, about), value = told(one.type), getattr(self, one.name)
            if get_origin(of) is Literal and value not in (known := get_args(of)):
                names = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}"
                raise InputError(f"{one.name}: expected {names}, got {value!r}")
            if about.min is not None and isinstance(value, int | float):
                not_below(about.min, one.name, value)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self | None:
        """Create the object from the values of its fields."""
        return cls(**given)

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, as arguments of an API function with the same defaults."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {one.name: values[one.name] for one in fields(self) if values[one.name] != one.default}

    def part(self, of: Callable[..., T], **others: Any) -> T:
        """Create an object of another dataclass. Fields that are also options here take their values from here;
        `others` holds the values of further fields."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return of(**{one.name: own[one.name] for one in fields(of) if one.name in own} | others)  # type: ignore[arg-type]

    @classmethod
    def require(cls, given: object) -> None:
        """Raise `InputError` if `given` is not an object of this class."""
        if not isinstance(given, cls):
            raise InputError(f"options: expected pyfast.{cls.__name__}(...), got {type(given).__name__}")

    def only(self, function: str, *names: str) -> Self:
        """Return the options. Raises `InputError` if an option that is not in `names` differs from its default;
        the error says that `function` supports only those in `names`."""
        for one in fields(self):
            if one.name not in names and getattr(self, one.name) != one.default:
                raise InputError(f"{one.name}: {function} does not have this option, only {', '.join(names)}")
        return self


def not_below(least: float, name: str, value: float) -> None:
    """Raise `InputError`, naming the number `name`, if it is below `least`, infinite or NaN."""
    if not value >= least or value == inf:
        raise InputError(f"{name}: expected a number of at least {least}, got {value}")


def at_least_one(name: str, value: int) -> int:
    """Return the number `value`. Raises `InputError` if it is below 1."""
    not_below(1, name, value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Options):
    """How a run is carried out: what it does with failures and outages, and what it stores."""

    prompts: Annotated[str | Path | None, Option(typed=Path | None)] = None
    """A TOML file with prompts that replace the system's own."""
    follow_ups: FollowUps = "off"
    sample: Annotated[int | None, Option(min=1, max=10**9)] = None
    """Answer only N questions, drawn uniformly at random. The same N always selects the same questions.

    A larger sample contains each smaller sample. A conversation is drawn with all its questions"""
    documents: Documents = "own"
    columns: Annotated[Mapping[str, str] | None, Option(flag="--column", typed=list[str] | None, read="pairs")] = (
        None
    )
    """Map a column name that pyfast expects to the one in the question file, such as question=Frage or
    answers=Antwort; repeatable.

    The run's folder then contains a copy of the questions with pyfast's column names"""
    outage: Annotated[float, Option(min=0.0)] = 30.0
    """How many minutes to wait for an LLM that is down. Then the run stops and can be resumed. 0: stop at once.

    An LLM is down if it is unreachable or overloaded, or has internal errors"""
    strict: bool = False
    """Let a question fail if the LLM returns no usable reply, instead of falling back to a simpler step.

    `run.status.fall_backs` counts these fallbacks"""
    max_failures: Annotated[int | str | None, Option(typed=str | None)] = None
    """How many questions or text chunks may fail before the run stops: a number, or a share such as 5%."""
    reuse: Annotated[str | Path | Sequence[str | Path], Option(typed=list[Path] | None, read="several")] = ()
    """The folder of an earlier run whose LLM replies to identical requests are reused; repeatable.

    The LLM must be the same. Above temperature 0, a reply is reused only for the question with the same id. The
    run copies the replies when it starts, so you can delete the earlier run afterwards"""
    ask_once: bool = False
    """Send identical requests at temperature 0 to the LLM only once; all questions with the same request share the
    reply.

    The call counts towards the first question; for the others, the reply counts as reused. Failed calls are not
    shared"""
    sync: Sync = "normal"
    """How durably the LLM's replies are stored. normal: a power cut can lose the most recent replies. full: a
    power cut loses no replies.

    With `full`, storing each reply takes longer"""
    keep_prompts: bool = True
    """Store the prompts in the run's folder.

    `Run.prompts` reads them. Use False for private data"""
    restart: bool = False
    """Start again, and rename the old folder."""
    accept_code: bool = False
    """Resume a run even if the code has changed since the run started; the answers may then differ.

    This refers to the code of pyfast and of the system. run.toml then records the old and the new version"""
    retry_failed: bool = False
    """Try the failed questions or text chunks again."""

    @property
    def reused(self) -> list[Path]:
        """The folders in `reuse`."""
        return list(map(Path, [self.reuse] if isinstance(self.reuse, str | Path) else self.reuse))


@dataclass(frozen=True, slots=True)
class Sampling(Options):
    """How the LLM samples an answer: temperature and seed. At temperature 0, it always chooses the most probable
    token."""

    TABLE: ClassVar[str] = "sampling"

    temperature: Annotated[float, Option(min=0.0)] = 0.0
    """The LLM's temperature. A temperature that the system sets for a prompt takes precedence."""
    seed: Annotated[int, Option(min=0)] = 0
    """The random seed for the LLM's sampling.

    pyfast also sends it at temperature 0, where most servers ignore it"""


@dataclass(frozen=True, slots=True)
class Cluster(Options):
    """A Ray cluster that runs the work."""

    TABLE: ClassVar[str] = "cluster"

    address: Annotated[str, Option(flag="--ray", typed=str | None)]
    """Run the work on a Ray cluster. local: processes on this machine. auto: the cluster to which
    this machine belongs. HOST:PORT: the address of a cluster."""
    workers: Annotated[int | None, Option(min=1)] = None
    """With --ray: the number of workers; by default as many as the cluster has resources for."""
    resources: Annotated[
        Mapping[str, float] | None, Option(flag="--worker-resources", typed=list[str] | None, read="values")
    ] = None
    """With --ray: the resources of each worker, such as GPU=1; repeatable.

    The names are Ray's, such as `GPU`. Default: one `CPU`"""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is not valid, and `MissingPackageError` if Ray is not installed."""
        Options.__post_init__(self)
        for name, amount in (self.resources or {}).items():
            if not isinstance(amount, int | float) or not 0 <= amount < inf:
                raise InputError(f"worker_resources {name}: expected a number of at least 0, got {amount}")
        with explained():
            import ray  # noqa: F401

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self | None:
        """Create the cluster, or return None if there is no address."""
        if given.get("address") is not None:
            return cls(**given)
        if any(given.values()):
            raise InputError("workers and worker_resources need ray")
        return None

    @property
    def needs(self) -> dict[str, float]:
        """The resources that each worker needs, including its `CPU`."""
        return {"CPU": 1.0, **(self.resources or {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions(Options):
    """How texts are split into passages and words, and how much memory building an index may use. All options
    except `memory` also apply to documents that are added later."""

    passage_length: int = 4000
    """The maximum number of characters in a passage. Longer paragraphs are split at sentence ends."""
    passage_overlap: int = 0
    """The maximum number of characters that neighbouring passages of a split paragraph share. The shared text
    consists of whole sentences or, if no sentence fits, of the last words of one."""
    tokenizer: Tokenizer = "words"
    """What counts as a word. words: each run of letters and digits, even a single character. characters: in
    addition, each character of a script without spaces between words, such as Chinese or Thai."""
    stemmer: str = "english"
    """The language of the Snowball stemmer, which maps all forms of a word to one term. none: each form is a
    separate term."""
    stop_words: StopWords = "english"
    """The words that searches ignore. english: frequent English words. none: no words, for other languages."""
    accents: Accents = "fold"
    """fold: words with and without accents are the same term. keep: they are different terms."""
    memory: int = 2000
    """How many MB of memory to use. A corpus that needs more is indexed in several parts.

    At least 600, not counting the page cache, the vectors and their model. The parts are merged at the end. If the
    process is killed, call `build_index` again with the same arguments: it keeps the finished parts without
    reading their files again, except for files that have changed in the meantime and all files after them"""


@dataclass(frozen=True, slots=True)
class Hardware(Options):
    """Where models encode texts, and where dense vectors and token vectors are searched."""

    TABLE: ClassVar[str] = "hardware"

    device: str = "auto"
    """The device on which models encode texts, and on which vectors are searched: cpu, cuda (a GPU) or
    cuda:NUMBER. auto: models run on a GPU if there is one; searches run on the CPU.

    On a GPU, the vectors stay in GPU memory. ONNX models run only on the CPU"""
    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    """The precision of models that encode texts. GPUs are several times faster at 16 bits."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is not valid."""
        Options.__post_init__(self)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise InputError(f"device: expected auto, cpu, cuda or cuda:NUMBER, got {self.device!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Options):
    """The loads that `pyfast.bench` measures, and how. In an open loop (`rates`, `trace`), questions arrive at
    times fixed in advance. In a closed loop (`clients`), each client asks its next question after receiving an
    answer."""

    rates: Annotated[Sequence[float], Option(flag="--rate", typed=list[float] | None, read="several")] = ()
    """Open loop: the number of questions that arrive per second, even if earlier ones are not finished;
    repeatable."""
    arrivals: Literal["poisson", "gamma", "constant"] = "poisson"
    """Open loop: the gaps between questions. poisson: random, as from many users. gamma: as --burstiness says.
    constant: all equal."""
    burstiness: float = 1.0
    """With --arrivals gamma: the shape of the distribution. Below 1, questions arrive in bursts.

    Above 1, the gaps are more even than with `poisson`"""
    trace: Annotated[str | Path | None, Option(typed=Path | None)] = None
    """Open loop: a file of arrival times in seconds, one per line. The first question arrives at once, so only the
    differences matter."""
    clients: Annotated[Sequence[int], Option(typed=list[int] | None, read="several")] = ()
    """Closed loop: the number of clients, each of which asks its next question when its last one is
    answered; repeatable."""
    sweep: bool = False
    """Find the highest number of questions per second that this process can answer.

    `bench` doubles the number of clients until the throughput rises by less than 5 %. Then it measures open loops
    at 50, 70, 80 and 90 % of the highest throughput"""
    count: Annotated[int, Option(min=1)] = 200
    """Number of questions in each repetition.

    With `trace`, it is the number of arrival times. If you give fewer questions, they are repeated under
    different ids, so the LLM's prefix cache helps more than in real use"""
    warm_up: Annotated[int, Option(min=0)] = 20
    """Number of questions to ask first without measuring them."""
    repeats: Annotated[int, Option(min=1)] = 3
    """How many times to measure each load.

    Figures are medians over these repetitions; `ranges` holds the smallest and largest values"""
    objective: float | None = None
    """A time limit in seconds. The goodput (useful throughput) counts only questions answered within this
    limit."""
    seed: Annotated[int, Option(min=0)] = 0
    """The random seed for the arrival times.

    Each repetition draws new times"""
    documents: Documents = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(Options):
    """How a server works: its prompts, and how it handles outages, conversations, files and batches, and
    shutdown."""

    outage: Annotated[float, Option(min=0.0)] = 0.0
    """How many minutes to wait for an LLM that is down. 0: reply with status 503 if all attempts at the call
    fail, and then a test call fails too."""
    prompts: Annotated[str | Path | None, Option(typed=Path | None)] = None
    """A TOML file with prompts that replace the systems' own."""
    follow_ups: FollowUps = "rewrite"
    jobs: Annotated[str | Path | None, Option(typed=Path | None)] = None
    """A folder for the clients' files and batches. Without --jobs, the server does not offer /v1/batches.

    Unfinished batches continue when the server starts again"""
    keys: Annotated[str | Path | None, Option(typed=Path | None)] = None
    """A TOML file with API keys. Each table [NAME] contains one key, in its field `key`. Its field `filter` limits
    the documents that the key can access; `requests_per_minute`, `requests_at_once` and `tokens_per_day`
    limit its use."""
    client_settings: Annotated[
        Sequence[str], Option(flag="--client-setting", typed=list[str] | None, read="several")
    ] = ()
    """A setting that requests may change, as SYSTEM.NAME; repeatable."""
    views: Annotated[int, Option(min=1)] = 32
    """Maximum number of filters (of requests and keys) whose documents are kept in temporary files."""
    grace: Annotated[float, Option(min=0.0)] = 30.0
    """How many seconds a stopping server waits for requests in progress."""
    access_log: bool = False
    """Log each request when it ends, with its status, duration in seconds and id."""


Epochs = Annotated[int, Option(min=1)]
"""Number of passes over all examples."""
LearningRate = Annotated[float, Option(min=0.0)]
"""Adam's peak learning rate."""
Accumulation = Annotated[int, Option(min=1)]
"""Number of examples per optimizer step.

Summed over all processes"""
LoraRank = Annotated[int, Option(min=1)]
"""The rank of the LoRA updates."""
LoraAlpha = Annotated[int, Option(min=1)]
"""The scale (alpha) of the LoRA updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions(Options):
    """The options shared by all kinds of training. Each kind has its own defaults."""

    epochs: Epochs = 1
    learning_rate: LearningRate = 5e-5
    accumulation: Accumulation = 4
    lora_rank: LoraRank = 128
    lora_alpha: LoraAlpha = 32
    seed: Annotated[int, Option(min=0)] = 0
    """The seed for the order of examples, the initial weights and the dropout."""
    minutes: Annotated[float | None, Option(min=0.0)] = None
    """Stop after this many minutes; to resume the training, repeat the command."""
    autocast: bool = False
    """Compute in bfloat16 where torch's autocast supports it. This is several times faster on a GPU.

    The trained weights stay in float32"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConvqaOptions(TrainingOptions):
    """How `train_graph_convqa` trains."""

    graph: bool = True
    """Whether to train with the evidence graph, or on text only.

    True: the LLM receives the evidence as a graph, through the encoder. False: the LLM receives the evidence as
    text, without an encoder"""
    layers: Annotated[int, Option(min=1)] = 2
    """Number of encoder layers."""
    heads: Annotated[int, Option(min=1)] = 2
    """Number of attention heads in each layer; the hidden size is divided among them."""
    dropout: Annotated[float, Option(min=0.0, max=0.99)] = 0.5
    """Dropout of the encoder's attention."""
    residual: bool = True
    """Add the encoder's output to the token embeddings. Off: the output replaces the embeddings, as in the
    paper."""
    memory: Literal["on", "off", "random"] = "on"
    """Which evidence from earlier turns replaces the worst-ranked evidence of a turn. on: the items most similar
    to the conversation so far. random: random items. off: none."""
    memory_share: Annotated[float, Option(min=0, max=1)] = 1 / 3
    """The share of a turn's evidence that --memory may replace."""
    passages: Annotated[int, Option(min=1)] = 50
    """Number of passages retrieved for a turn. Their evidence items are then ranked."""
    k: Annotated[int, Option(min=1)] = 20
    """Number of best-ranked evidence items for a turn."""
    max_prompt_tokens: Annotated[int, Option(min=128)] = 1024
    """Maximum number of tokens in a prompt.

    Evidence that does not fit is left out, and a warning says how much"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions(TrainingOptions):
    """The options shared by all kinds of adapter training."""

    accumulation: Accumulation = 16
    batch: Annotated[int, Option(min=1)] = 1
    """Maximum number of examples in a batch.

    Examples of similar length are batched together"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the model's own weights.

    The trained updates are always in float32"""
    checkpointing: bool = False
    """Recompute the layers' outputs for the gradient instead of storing them. This saves memory and takes more
    time."""
    lora_rank: LoraRank = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillOptions(AdapterOptions):
    """How `distill` chooses examples and trains on them. The learning rate rises during the first 3 % of the
    steps, then falls along a cosine."""

    right: Annotated[str | Path, Option(typed=str)] = "gold"
    """Which questions to use as examples. gold: those whose answer is correct according to the gold answers.
    all: all that did not fail. The folder of a `pyfast judge` run: those whose answer the judge preferred."""
    min_f1: Annotated[float, Option(min=0, max=1)] = 1.0
    """With --right gold: the lowest F1 at which an answer counts as correct."""
    held_out: Annotated[float, Option(min=0, max=0.9)] = 0.1
    """The share of the questions held out from training, to measure the trained model.

    Whether a question is held out depends only on its text, so it is held out in all runs or in none"""
    size: Annotated[int, Option(min=1)] = 4000
    """Maximum number of examples, divided equally among the system's prompts (such as plan and answer).

    If a prompt has fewer examples than its share, the others get the rest"""
    max_tokens: Annotated[int, Option(min=16)] = 2048
    """Maximum number of tokens in an example (prompt plus reply). Longer examples are left out."""
    epochs: Epochs = 2
    learning_rate: LearningRate = 2e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class HseqOptions(AdapterOptions):
    """How `train_hseq_iterator` trains. The learning rate rises during the first 3 % of the steps, then falls
    along a cosine."""

    weights: Annotated[Sequence[float], Option(typed=str, shown="", read="numbers")] = ()
    """The weights of the sources, such as 2,1. The number of examples from a source is proportional to its weight.
    By default, all weights are equal."""
    size: Annotated[int, Option(min=1)] = 512
    """Number of examples from all sources together.

    An example is one step of hseq"""
    max_positives: Annotated[int, Option(min=1)] = 4
    """Maximum number of positives (segments that training teaches to choose) for a question."""
    lexical_weight: Annotated[float, Option(min=0, max=1)] = 0.3
    """Weight of positives that only share words with the question. 0: use no such positives."""
    verdict_weight: Annotated[float, Option(min=0.0)] = 1.0
    """Loss weight of the tokens that say whether the evidence is sufficient.

    All other tokens of an action have weight 1"""
    learning_rate: LearningRate = 2e-5


RUN_DEFAULTS = RunOptions()
INDEX_DEFAULTS = IndexOptions()
HARDWARE_DEFAULTS = Hardware()
SERVER_DEFAULTS = ServerOptions()
GRAPH_CONVQA_DEFAULTS = GraphConvqaOptions()
HSEQ_DEFAULTS = HseqOptions()
DISTILL_DEFAULTS = DistillOptions()
OF_EVERY_RUN = ("outage", "sync", "keep_prompts", "restart", "retry_failed")
"""The options of the runs that `judge_runs` and `write_questions` start"""
OF_EXTRACTION = ("outage", "max_failures", "restart", "retry_failed")
"""The options of the run that `build_knowledge` starts"""
OF_EXPERIMENT = ("outage", "sample", "restart", "accept_code")
"""The options of an experiment's runs"""
GREEDY = Sampling()


def read_options(path: str | Path) -> dict[str, Any]:
    """Read the options of a run from a TOML file.

    The keys are the names of the fields of `RunOptions`. The tables `sampling`, `cluster` and `hardware` contain
    the fields of `Sampling`, `Cluster` and `Hardware`.

    Args:
        path: The file.

    Returns:
        The arguments `options`, `sampling` and `cluster` of `pyfast.answer`. If the file has a table `hardware`,
        also the argument `hardware` of `pyfast.open_index`.

    Raises:
        InputError: The file cannot be read, a key is unknown, or a value is not valid.

    Example:
        >>> import pathlib, pyfast
        >>> _ = pathlib.Path("options.toml").write_text('outage = 60\\n[sampling]\\nseed = 7\\n')
        >>> given = pyfast.read_options("options.toml")
        >>> given["options"].outage, given["sampling"].seed, given["cluster"]
        (60, 7, None)
    """
    kinds: tuple[type[Options], ...] = (RunOptions, Sampling, Cluster, Hardware)
    read = read_values(Path(path), {kind: [one.name for one in fields(kind)] for kind in kinds})
    return {
        kind.TABLE or "options": kind.of(given) for kind, given in read.items() if given or kind is not Hardware
    }


def read_values(
    path: Path, wanted: Mapping[type[Options], Collection[str]]
) -> dict[type[Options], dict[str, Any]]:
    """Read option values from a TOML file, for the fields that `wanted` names for each class. Raises `InputError`
    if the file cannot be read, or contains another key or a value of the wrong type."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from None
    read: dict[type[Options], dict[str, Any]] = {}
    for kind in sorted(wanted, key=lambda kind: kind.TABLE, reverse=True):  # the tables first
        part = content.pop(kind.TABLE, {}) if kind.TABLE else content
        where = f"{path}: {kind.TABLE}." if kind.TABLE else f"{path}: "
        if not isinstance(part, dict):
            raise InputError(f"{where[:-1]}: expected a table")
        for name, value in part.items():
            if name not in wanted[kind]:
                hint = did_you_mean(name, wanted[kind]) or f"; known: {', '.join(wanted[kind])}"
                raise InputError(f"{where}{name}: there is no such option{hint}")
            if not _fits(value, of := told(kind.__dataclass_fields__[name].type)[0]):
                raise InputError(f"{where}{name}: expected {_in_words(of)}, got {value!r}")
        read[kind] = part
    return {kind: read[kind] for kind in wanted}


def _fits(value: Any, of: Any) -> bool:
    """Return whether a value from a TOML file has an option's type."""
    origin = get_origin(of)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(of))
    if origin is Literal:
        return value in get_args(of)
    if isinstance(value, bool) or of is bool:
        return isinstance(value, bool) and of is bool
    return isinstance(value, {float: int | float, Path: str}.get(of, origin or of))


def _in_words(of: Any) -> str:
    if get_origin(of) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_in_words(part) for part in get_args(of) if part is not type(None)))
    if get_origin(of) is Literal:
        return " or ".join(get_args(of))
    named = {bool: "true or false", int: "a number", float: "a number", str: "text", Path: "text"}
    return named.get(of, "a table")
