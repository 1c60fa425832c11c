"""The options that several functions share, as frozen dataclasses: `RunOptions`, `Sampling`, `Cluster` and others.

A field here is the one place for an option's name, type, default and meaning. The functions of the API take the
objects, the command line makes its options from the fields, and `read_options` reads them from a TOML file.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from math import inf
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

from pyfast.errors import InputError, did_you_mean
from pyfast.utils.extras import explained

T = TypeVar("T")
FollowUps = Literal["off", "rewrite", "resolve"]
"""How a later turn becomes a question.

`off`: the turn stays unchanged. `rewrite`: the LLM rewrites the turn. `resolve`: the LLM finds terms of
earlier turns that the turn leaves out, and pyfast adds these terms to the turn
"""
Sync = Literal["normal", "full"]
Tokenizer = Literal["words", "characters"]
StopWords = Literal["english", "none"]
Accents = Literal["fold", "keep"]


@dataclass(frozen=True, slots=True)
class Option:
    """What the command line shows of an option, and how it reads it. `Annotated[TYPE, Option(...)]` is the type of
    the option's field."""

    help: str
    min: float | None = None
    """The smallest number that is valid"""
    max: float | None = None
    """The largest number that the command line accepts"""
    flag: str = ""
    """The option's name on the command line. Empty: the field's name"""
    typed: Any = None
    """The option's type on the command line. None: the field's type"""
    shown: Any = None
    """The option's default on the command line. None: the field's default"""
    read: str = ""
    """What makes the value from the texts on the command line: a name in `pyfast.commands.arguments`"""

    def __repr__(self) -> str:
        return "Option(...)"  # so that signatures stay readable


def told(one: Field[Any]) -> tuple[Any, Option]:
    """Return (the type, the description) of an option."""
    of, about = get_args(one.type)
    return of, about


@dataclass(frozen=True, slots=True)
class Options:
    """Several options that belong together. The values are checked when the object is made."""

    TABLE: ClassVar[str] = ""
    """The table of a TOML file that has these options. Empty: they stand above all tables"""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is not valid."""
        for one in fields(self):
            (of, about), value = told(one), getattr(self, one.name)
            if get_origin(of) is Literal and value not in (known := get_args(of)):
                names = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}"
                raise InputError(f"{one.name}: expected {names}, got {value!r}")
            if about.min is not None and isinstance(value, int | float):
                not_below(about.min, one.name, value)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self | None:
        """Make the object from the values of its fields."""
        return cls(**given)

    def part(self, of: Callable[..., T], **others: Any) -> T:
        """Make an object of another dataclass: its fields that are also options here get their values from here,
        and `others` has values of further fields."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return of(**{one.name: own[one.name] for one in fields(of) if one.name in own} | others)  # type: ignore[arg-type]

    def only(self, function: str, *names: str) -> Self:
        """Return the options. Raises `InputError` if an option that is not in `names` differs from its default.
        `function` is the name of the function that uses only the options in `names`."""
        for one in fields(self):
            if one.name not in names and getattr(self, one.name) != one.default:
                raise InputError(f"{one.name}: {function} has no such option, only {', '.join(names)}")
        return self


def not_below(least: float, name: str, value: float) -> None:
    """Raise `InputError` if a number is below `least`, infinite or NaN. `name` is its name."""
    if not value >= least or value == inf:
        raise InputError(f"{name}: expected a number of at least {least}, got {value}")


def at_least_one(name: str, value: int) -> int:
    """Return the number `value`. Raises `InputError` if it is below 1."""
    not_below(1, name, value)
    return value


FOLLOW_UPS = Option(
    "What to do with later questions of a conversation, if the system answers only single"
    " questions. rewrite: the LLM rewrites each question so that it can be understood alone."
    " resolve: the LLM adds the names that the question leaves out. off: the questions stay"
    " unchanged."
)


Documents = Annotated[
    Literal["own", "all"],
    Option(
        "own: a question with the field `documents` searches only these documents. all: every"
        " question searches the whole index."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Options):
    """How a run is carried out: what it does with failures and outages, and what it stores."""

    prompts: Annotated[
        str | Path | None, Option("A TOML file with prompts that replace the system's own.", typed=Path | None)
    ] = None
    follow_ups: Annotated[FollowUps, FOLLOW_UPS] = "off"
    sample: Annotated[
        int | None,
        Option(
            "Take only N questions, drawn uniformly. The same N always draws the same questions.", min=1, max=10**9
        ),
    ] = None
    """A larger sample contains each smaller sample. A conversation is drawn with all its questions"""
    documents: Documents = "own"
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            "A column of the file of questions that has another name than pyfast's, such as question=Frage or"
            " answers=Antwort; repeatable.",
            flag="--column",
            typed=list[str] | None,
            read="pairs",
        ),
    ] = None
    """The folder of the run then gets a copy of the questions with pyfast's names"""
    outage: Annotated[
        float, Option("How many minutes to wait for an LLM that answers no call. 0: stop at once.", min=0.0)
    ] = 30.0
    """An LLM answers no call if it cannot be reached, is overloaded or has internal errors. After this time the
    run stops, and you can resume it"""
    strict: Annotated[
        bool,
        Option(
            "A question fails if the LLM gives no usable reply. Without --strict, the system takes a simpler step."
        ),
    ] = False
    """The simpler step is called the system's fallback. `run.status.fall_backs` counts these steps"""
    max_failures: Annotated[
        int | str | None,
        Option(
            "Stop if more questions or chunks fail than this allows: a number, or a share such as 5%.",
            typed=str | None,
        ),
    ] = None
    reuse: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "The folder of an earlier run, whose LLM replies serve equal requests of this run; repeatable.",
            typed=list[Path] | None,
            read="several",
        ),
    ] = ()
    """The LLM must be the same. A reply at a temperature above 0 serves only the question with the same id. The
    run copies the replies when it starts, so you can then delete the earlier run"""
    sync: Annotated[
        Sync, Option("normal: a power cut can lose the last replies of the LLM. full: a power cut loses no reply.")
    ] = "normal"
    """With `full`, pyfast needs more time to store each reply"""
    keep_prompts: Annotated[bool, Option("Store the prompts in the run's folder.")] = True
    """`Run.prompts` reads them. Use False for private data"""
    restart: Annotated[bool, Option("Start again; the old folder gets another name.")] = False
    accept_code: Annotated[
        bool, Option("Resume a run that another version of the code started; the answers may then differ.")
    ] = False
    """The other version is of pyfast or of the system's code. The file run.toml then records both versions"""
    retry_failed: Annotated[bool, Option("Try the failed questions or chunks again.")] = False

    @property
    def reused(self) -> list[Path]:
        """The folders in `reuse`."""
        return list(map(Path, [self.reuse] if isinstance(self.reuse, str | Path) else self.reuse))


@dataclass(frozen=True, slots=True)
class Sampling(Options):
    """How the LLM samples an answer: temperature and seed. At temperature 0, it always chooses the most probable
    token."""

    TABLE: ClassVar[str] = "sampling"

    temperature: Annotated[
        float,
        Option(
            "The LLM's temperature. A temperature that the system sets for a prompt takes precedence.", min=0.0
        ),
    ] = 0.0
    seed: Annotated[int, Option("The seed of the LLM's sampling.", min=0)] = 0
    """pyfast also sends it at temperature 0, where most servers ignore it"""


@dataclass(frozen=True, slots=True)
class Cluster(Options):
    """A Ray cluster whose workers do the work."""

    TABLE: ClassVar[str] = "cluster"

    address: Annotated[
        str,
        Option(
            "Let the workers of a Ray cluster do the work. local: processes on this machine. auto:"
            " the cluster to which this machine belongs. HOST:PORT: the address of a cluster.",
            flag="--ray",
            typed=str | None,
        ),
    ]
    workers: Annotated[
        int | None,
        Option("With --ray: the number of workers; by default as many as the cluster has resources for.", min=1),
    ] = None
    resources: Annotated[
        Mapping[str, float] | None,
        Option(
            "With --ray: the resources of each worker, such as GPU=1; repeatable.",
            flag="--worker-resources",
            typed=list[str] | None,
            read="values",
        ),
    ] = None
    """The names are Ray's, such as `{"GPU": 1}`. Default: one `CPU`"""

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
        """Make the cluster. Without an address, there is none."""
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
    """How texts are cut into passages and words, and how much memory the build of an index may use. All but
    `memory` hold for documents that are added later, too."""

    passage_length: Annotated[
        int,
        Option("The maximum number of characters in a passage. Longer paragraphs are cut at sentence ends."),
    ] = 4000
    passage_overlap: Annotated[
        int,
        Option(
            "The maximum number of characters that neighbouring passages of a cut paragraph share."
            " They share whole sentences. If not even one fits, they share its last words."
        ),
    ] = 0
    tokenizer: Annotated[
        Tokenizer,
        Option(
            "What counts as a word. words: words, and digits and letters that stand alone. characters:"
            " also each character of a script without blanks between words, such as Chinese and Thai."
        ),
    ] = "words"
    stemmer: Annotated[
        str,
        Option(
            "The language of the texts, for the Snowball stemmer: all forms of a word are one term. none:"
            " each form is its own term."
        ),
    ] = "english"
    stop_words: Annotated[
        StopWords, Option("The words that searches ignore; use none for texts that are not English.")
    ] = "english"
    accents: Annotated[
        Accents, Option("fold: words with and without accents are the same term. keep: they differ.")
    ] = "fold"
    memory: Annotated[
        int, Option("How many MB of memory to use. A corpus that needs more memory is indexed part by part.")
    ] = 2000
    """At least 600. The page cache, the vectors and their model do not count. The parts are merged at the end.
    If the process is killed, call `build_index` again with the same arguments. The new call keeps the finished
    parts, and does not read the files of these parts again. If a file has changed in the meantime, this file and
    all files after it are read again"""


@dataclass(frozen=True, slots=True)
class Hardware(Options):
    """Where models encode texts, and where dense vectors and vectors of tokens are searched."""

    TABLE: ClassVar[str] = "hardware"

    device: Annotated[
        str,
        Option(
            "Where models encode texts and vectors are searched: cpu, cuda (a GPU) or cuda:NUMBER. auto: models"
            " run on a GPU if there is one, and searches on the CPU."
        ),
    ] = "auto"
    """With a GPU, the search keeps the vectors in its memory. Models that are ONNX files run only on the CPU"""
    precision: Annotated[
        Literal["float32", "float16", "bfloat16"],
        Option("The precision of models that encode texts. A GPU is several times faster with 16-bit numbers."),
    ] = "float32"

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is not valid."""
        Options.__post_init__(self)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise InputError(f"device: expected auto, cpu, cuda or cuda:NUMBER, got {self.device!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Options):
    """The loads that `pyfast.bench` measures, and how. In an open loop (`rates`, `trace`), questions arrive at
    times that are fixed in advance. In a closed loop (`clients`), each client asks its next question after it
    gets an answer."""

    rates: Annotated[
        Sequence[float],
        Option(
            "Open loop: the number of questions that arrive in a second, even if earlier questions"
            " have not ended; repeatable.",
            flag="--rate",
            typed=list[float] | None,
            read="several",
        ),
    ] = ()
    arrivals: Annotated[
        Literal["poisson", "gamma", "constant"],
        Option("Open loop: the distribution of the gaps between two questions."),
    ] = "poisson"
    burstiness: Annotated[
        float,
        Option("With --arrivals gamma: the shape of the distribution. Below 1, questions come in bursts."),
    ] = 1.0
    """Above 1, the gaps are more even than with `poisson`"""
    trace: Annotated[
        str | Path | None,
        Option(
            "Open loop: a file with the times at which questions arrive, a number of seconds on each line."
            " The first question arrives at once, so only the differences matter.",
            typed=Path | None,
        ),
    ] = None
    clients: Annotated[
        Sequence[int],
        Option(
            "Closed loop: the number of clients. A client asks its next question when its last"
            " question has ended; repeatable.",
            typed=list[int] | None,
            read="several",
        ),
    ] = ()
    sweep: Annotated[
        bool, Option("Find the highest number of questions a second that this process can answer.")
    ] = False
    """`bench` doubles the number of clients until the throughput rises by less than 5 %. Then it measures open
    loops at 50, 70, 80 and 90 % of the highest throughput"""
    count: Annotated[int, Option("Number of questions in each repetition.", min=1)] = 200
    """For the load of `trace`, it is the number of arrival times. If you give fewer questions, they are asked
    again with other ids. The LLM's prefix cache then helps more than in real use"""
    warm_up: Annotated[int, Option("Number of questions that are asked first and not measured.", min=0)] = 20
    repeats: Annotated[int, Option("How often each load is measured.", min=1)] = 3
    """Figures are medians over these repetitions. `ranges` has the smallest and largest values"""
    objective: Annotated[
        float | None,
        Option(
            "A number of seconds. The goodput (useful throughput) counts only questions that take at"
            " most this long."
        ),
    ] = None
    seed: Annotated[int, Option("The seed of the arrival times.", min=0)] = 0
    """Each repetition draws new times"""
    documents: Documents = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(Options):
    """How a server answers: its prompts, and what it does in outages, with conversations, with files and
    batches, and at its end."""

    outage: Annotated[
        float,
        Option(
            "How many minutes to wait for an LLM that answers no call. 0: reply with status 503 at once.", min=0.0
        ),
    ] = 0.0
    prompts: Annotated[
        str | Path | None,
        Option("A TOML file with prompts that replace the systems' own.", typed=Path | None),
    ] = None
    follow_ups: Annotated[FollowUps, FOLLOW_UPS] = "rewrite"
    jobs: Annotated[
        str | Path | None,
        Option(
            "A folder for the files and batches of clients. Without it, the server does not offer /v1/batches.",
            typed=Path | None,
        ),
    ] = None
    """Unfinished batches continue when the server starts again"""
    keys: Annotated[
        str | Path | None,
        Option(
            "A TOML file with API keys, each in a table [NAME] with key. filter lets its clients see only some"
            " documents; requests_per_minute, requests_at_once and tokens_per_day limit them.",
            typed=Path | None,
        ),
    ] = None
    client_settings: Annotated[
        Sequence[str],
        Option(
            "A setting that requests may change, as SYSTEM.NAME; repeatable.",
            flag="--client-setting",
            typed=list[str] | None,
            read="several",
        ),
    ] = ()
    views: Annotated[
        int,
        Option(
            "How many filters of requests and keys keep their documents in temporary files at once.",
            min=1,
        ),
    ] = 32
    grace: Annotated[
        float, Option("How many seconds the server waits for requests in progress when it is stopped.", min=0.0)
    ] = 30.0


Epochs = Annotated[int, Option("How often the training goes through all examples.", min=1)]
LearningRate = Annotated[float, Option("The highest learning rate of Adam.", min=0.0)]
Accumulation = Annotated[int, Option("Number of examples for each step of the optimizer.", min=1)]
LoraRank = Annotated[int, Option("The rank of LoRA's updates.", min=1)]
LoraAlpha = Annotated[int, Option("The scale of LoRA's updates.", min=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions(Options):
    """The options that all trainings share. Each training has its own defaults."""

    epochs: Epochs = 1
    learning_rate: LearningRate = 5e-5
    accumulation: Accumulation = 4
    """In all processes together"""
    lora_rank: LoraRank = 128
    lora_alpha: LoraAlpha = 32
    seed: Annotated[
        int, Option("The seed for the order of examples, the initial weights and the dropout.", min=0)
    ] = 0
    minutes: Annotated[
        float | None, Option("Stop after this many minutes; to resume the training, repeat the command.", min=0.0)
    ] = None
    autocast: Annotated[
        bool, Option("Compute in bfloat16 where torch's autocast can. A GPU is several times faster then.")
    ] = False
    """The trained weights stay in float32"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConvqaOptions(TrainingOptions):
    """How `train_graph_convqa` trains."""

    graph: Annotated[bool, Option("Whether to train with the evidence graph, or on text only.")] = True
    """True: the LLM gets the evidence as a graph, which the encoder reads. False: the LLM gets the evidence as
    text, and there is no encoder, as in one row of the paper's comparison"""
    layers: Annotated[int, Option("Number of layers of the encoder.", min=1)] = 2
    heads: Annotated[
        int, Option("Number of attention heads in each layer; the hidden size is divided among them.", min=1)
    ] = 2
    dropout: Annotated[float, Option("Dropout of the encoder's attention.", min=0.0, max=0.99)] = 0.5
    residual: Annotated[
        bool,
        Option(
            "Add the encoder's output to the token embeddings. Off: the output replaces the"
            " embeddings, as in the paper."
        ),
    ] = True
    memory: Annotated[
        Literal["on", "off", "random"],
        Option(
            "Which evidence of earlier turns takes the place of the worst-ranked evidence of a turn."
            " on: the items that are most similar to the query. random: random items. off: none."
        ),
    ] = "on"
    """The query consists of all questions and answers so far"""
    memory_share: Annotated[
        float, Option("The share of a turn's evidence that --memory may replace.", min=0, max=1)
    ] = 1 / 3
    passages: Annotated[
        int,
        Option(
            "Number of passages that the search for a turn finds. Their evidence items are then ranked.", min=1
        ),
    ] = 50
    k: Annotated[int, Option("Number of evidence items that a turn gets: the best-ranked items.", min=1)] = 20
    max_prompt_tokens: Annotated[int, Option("Maximum tokens of a prompt.", min=128)] = 1024
    """Evidence that does not fit is left out, and a warning says how much"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions(TrainingOptions):
    """The options that the trainings of adapters share."""

    accumulation: Accumulation = 16
    batch: Annotated[int, Option("Maximum number of examples that go through the model together.", min=1)] = 1
    """They have similar lengths"""
    precision: Annotated[Literal["float32", "bfloat16"], Option("Precision of the model's own weights.")] = (
        "float32"
    )
    """The trained updates are always in float32"""
    checkpointing: Annotated[
        bool,
        Option(
            "Do not store the layers' outputs, but compute them again for the gradient. This needs"
            " less memory and more time."
        ),
    ] = False
    lora_rank: LoraRank = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillOptions(AdapterOptions):
    """How `distill` chooses examples and trains on them. During the first 3 % of the steps, the learning rate
    rises. Then it falls along a cosine."""

    right: Annotated[
        str | Path,
        Option(
            "Which questions give examples. gold: those whose answer is right by the gold answers. all: all that"
            " did not fail. The folder of a run of `pyfast judge`: those whose answer the judge preferred.",
            typed=str,
        ),
    ] = "gold"
    min_f1: Annotated[
        float, Option("With --right gold: the smallest F1 of an answer that counts as right.", min=0, max=1)
    ] = 1.0
    held_out: Annotated[
        float, Option("The share of the questions that only measure the trained model.", min=0, max=0.9)
    ] = 0.1
    """The text of a question decides, so that a question of several runs is on one side"""
    size: Annotated[int, Option("Maximum number of examples. Each prompt gets an equal share.", min=1)] = 4000
    """A prompt with fewer examples than its share leaves the rest to the others"""
    max_tokens: Annotated[
        int, Option("Maximum tokens of an example, prompt and reply together. Longer ones are left out.", min=16)
    ] = 2048
    epochs: Epochs = 2
    learning_rate: LearningRate = 2e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class HseqOptions(AdapterOptions):
    """How `train_hseq_iterator` trains. During the first 3 % of the steps, the learning rate rises. Then it
    falls along a cosine."""

    weights: Annotated[
        Sequence[float],
        Option(
            "The weights of the sources, such as 2,1. The number of examples from a source is in"
            " proportion to its weight. By default, all weights are equal.",
            typed=str,
            shown="",
            read="numbers",
        ),
    ] = ()
    size: Annotated[int, Option("Number of examples from all sources together.", min=1)] = 512
    """An example is one step of hseq"""
    max_positives: Annotated[int, Option("Maximum number of positives for a question.", min=1)] = 4
    """Positives are the segments that the iterator learns to choose"""
    lexical_weight: Annotated[
        float, Option("Weight of positives that only share words with the question.", min=0, max=1)
    ] = 0.3
    """0: the training uses no such positives"""
    verdict_weight: Annotated[
        float, Option("Weight of the tokens that say whether the evidence is sufficient.", min=0.0)
    ] = 1.0
    """The weight in the loss. All other tokens of an action have the weight 1"""
    learning_rate: LearningRate = 2e-5


RUN_DEFAULTS = RunOptions()
INDEX_DEFAULTS = IndexOptions()
HARDWARE_DEFAULTS = Hardware()
SERVER_DEFAULTS = ServerOptions()
GRAPH_CONVQA_DEFAULTS = GraphConvqaOptions()
HSEQ_DEFAULTS = HseqOptions()
DISTILL_DEFAULTS = DistillOptions()
OF_EVERY_RUN = ("outage", "sync", "restart", "retry_failed")
"""The options of the runs of `judge_runs` and `write_questions`"""
OF_EXTRACTION = ("outage", "max_failures", "restart", "retry_failed")
"""The options of the run of `build_knowledge`"""
OF_EXPERIMENT = ("outage", "sample", "restart", "accept_code")
"""The options of the runs of an experiment"""
GREEDY = Sampling()


def read_options(path: str | Path) -> dict[str, Any]:
    """Read the options of a run from a TOML file.

    The keys are the names of the fields of `RunOptions`. The tables `sampling`, `cluster` and `hardware` have the
    fields of `Sampling`, `Cluster` and `Hardware`.

    Args:
        path: The file.

    Returns:
        The arguments `options`, `sampling` and `cluster` of `pyfast.answer`. If the file has the table `hardware`,
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
    """Read the values of options from a TOML file: of the fields that `wanted` names, for each class. Raises
    `InputError` if the file cannot be read, or has another key or a value of another type."""
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
                hint = did_you_mean(name, wanted[kind]) or f"; there are: {', '.join(wanted[kind])}"
                raise InputError(f"{where}{name}: no such option{hint}")
            if not _fits(value, of := told(kind.__dataclass_fields__[name])[0]):
                raise InputError(f"{where}{name}: expected {_in_words(of)}, got {value!r}")
        read[kind] = part
    return {kind: read[kind] for kind in wanted}


def _fits(value: Any, of: Any) -> bool:
    """Return whether a value of a TOML file is of the type of an option."""
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
