"""`pyfast.convert`: published data sets as corpus, questions and gold."""

from __future__ import annotations

from pathlib import Path

from pyfast.evaluation.data_sets import Converted
from pyfast.evaluation.data_sets import convert as write


def convert(name: str, source: str | Path, out: str | Path) -> Converted:
    """Convert a data set, as its authors publish it, into corpus.jsonl, questions.jsonl and gold.jsonl.

    A question of a set that gives each question its own documents has their uris as `documents`.

    Args:
        name: The set: `hotpotqa`, `2wiki`, `musique`, `hybridqa`, `metaqa`, `tatqa`, `convmix`; or, not tried on
            the published files, `ottqa`, `nq`, `triviaqa`, `popqa`, and `hipporag` (the corpora of HippoRAG for
            2Wiki, MuSiQue and HotpotQA: give `NAME_corpus.json`, with `NAME.json` beside it).
        source: Its file of questions, or the folder of the download where it has only one such file.
        out: The folder to make. It appears whole or not at all.

    Returns:
        The files, and how many documents and questions they hold. `convmix`, `nq`, `triviaqa` and `popqa` bring no
        corpus; for `convmix`, `dev_ers.jsonl` of CONVINSE or EXPLAIGNN does.

    Raises:
        InputError: The source has another layout, or `out` exists already.

    Example:
        >>> import pyfast
        >>> made = pyfast.convert("nq", "NQ-open.dev.jsonl", "NQ")
        >>> made.questions.name
        'questions.jsonl'
    """
    return write(name, Path(source), Path(out))
