"""`pyfast.convert`: convert published data sets into a corpus, questions and gold answers."""

from __future__ import annotations

from pathlib import Path

from pyfast.evaluation.data_sets import Converted
from pyfast.evaluation.data_sets import convert as write


def convert(name: str, source: str | Path, out: str | Path) -> Converted:
    """Convert a data set from its authors' files into corpus.jsonl, questions.jsonl and gold.jsonl.

    In some sets, each question has its own documents. Then the field `documents` of a question has their uris.

    Args:
        name: The name of the set: `hotpotqa`, `2wiki`, `musique`, `hybridqa`, `metaqa`, `tatqa` or `convmix`. Five
            more names were not tested with the published files: `ottqa`, `nq`, `triviaqa`, `popqa` and `hipporag`.
            `hipporag` is for the corpora that HippoRAG's authors publish for 2Wiki, MuSiQue and HotpotQA. Give
            `NAME_corpus.json` as the source, with `NAME.json` in the same folder.
        source: The set's file of questions. If a folder has only one such file, you can give the folder.
        out: The folder to make. If the conversion fails, there is no folder.

    Returns:
        The paths of the files, and the numbers of documents and questions. `convmix`, `nq`, `triviaqa` and `popqa`
        have no corpus. For `convmix`, you can use the file `dev_ers.jsonl` of CONVINSE or EXPLAIGNN as the source:
        this file has a corpus.

    Raises:
        InputError: The source does not have the layout of this data set, or `out` exists already.

    Example:
        >>> import pyfast
        >>> made = pyfast.convert("nq", "NQ-open.dev.jsonl", "NQ")
        >>> made.questions.name
        'questions.jsonl'
    """
    return write(name, Path(source), Path(out))
