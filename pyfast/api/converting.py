"""`pyfast.convert`: published data sets as corpus, questions and gold."""

from __future__ import annotations

from pathlib import Path

from pyfast.evaluation.data_sets import Converted
from pyfast.evaluation.data_sets import convert as write


def convert(name: str, source: str | Path, out: str | Path) -> Converted:
    """Convert a data set, as its authors publish it, into corpus.jsonl, questions.jsonl and gold.jsonl.

    If the set gives each question its own documents, `documents` has their uris.

    Args:
        name: The name of the set: `hotpotqa`, `2wiki`, `musique`, `hybridqa`, `metaqa`, `tatqa` or `convmix`. Five
            more names were not tested with the published files: `ottqa`, `nq`, `triviaqa`, `popqa` and `hipporag`.
            `hipporag` stands for the corpora of HippoRAG for 2Wiki, MuSiQue and HotpotQA: give `NAME_corpus.json`,
            with `NAME.json` beside it.
        source: The set's file of questions, or the download folder, if only one such file is in it.
        out: The folder to make. It appears when it is complete, or not at all.

    Returns:
        The files, and how many documents and questions they hold. `convmix`, `nq`, `triviaqa` and `popqa` have no
        corpus. For `convmix`, you can use `dev_ers.jsonl` of CONVINSE or EXPLAIGNN as the source; this file has
        one.

    Raises:
        InputError: The source has another layout, or `out` exists already.

    Example:
        >>> import pyfast
        >>> made = pyfast.convert("nq", "NQ-open.dev.jsonl", "NQ")
        >>> made.questions.name
        'questions.jsonl'
    """
    return write(name, Path(source), Path(out))
