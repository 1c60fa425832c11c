"""`pyfast.convert`: convert published data sets into a corpus, questions and gold answers."""

from __future__ import annotations

from pathlib import Path

from pyfast.evaluation.data_sets import Converted
from pyfast.evaluation.data_sets import convert as write


def convert(name: str, source: str | Path, out: str | Path) -> Converted:
    """Convert a data set from its authors' files into corpus.jsonl, questions.jsonl and gold.jsonl.

    In some sets, each question has its own documents. The field `documents` of the question then lists their uris.

    Args:
        name: The name of the set: `hotpotqa`, `2wiki`, `musique`, `hybridqa`, `metaqa`, `tatqa` or `convmix`.
            The sets `ottqa`, `nq`, `triviaqa`, `popqa` and `hipporag` work too, but were not tested with the
            published files. `hipporag` stands for the corpora that HippoRAG's authors publish for 2Wiki,
            MuSiQue and HotpotQA. For `hipporag`, the source is one of these corpora, such as
            `musique_corpus.json`. The questions, here `musique.json`, must be in the same folder. For `beir`, the
            source is the folder with corpus.jsonl, queries.jsonl and qrels, or the file of a split in qrels.
            For `flashrag`, it is a file of questions.
        source: The set's file of questions. If a folder has only one such file, you can give the folder.
        out: The folder to make. If the conversion fails, no folder is made.

    Returns:
        The paths of the files, the numbers of documents and questions, and notes on what was changed or left out,
        such as repeated ids. `convmix`, `nq`, `triviaqa` and `popqa`
        have no corpus. To get a corpus for `convmix`, give the file `dev_ers.jsonl` of CONVINSE or EXPLAIGNN as
        the source.

    Raises:
        InputError: The source does not have the layout of this data set, or `out` exists already.

    Example:
        >>> import pyfast
        >>> made = pyfast.convert("nq", "NQ-open.dev.jsonl", "NQ")
        >>> made.questions.name
        'questions.jsonl'
    """
    return write(name, Path(source), Path(out))
