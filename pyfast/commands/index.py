"""`pyfast index`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pyfast.commands.terminal import console, plain
from pyfast.errors import InputError

if TYPE_CHECKING:
    from pyfast.corpus import Unread

Readers = Annotated[
    list[str] | None, typer.Option("--reader", help="A reader of another format, MODULE:NAME; repeatable.")
]
Columns = Annotated[
    int, typer.Option(min=2, help="Cut a table of more columns into several; each keeps the first column.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")]


def index(
    sources: Annotated[list[Path], typer.Argument(help="Files or folders; docs/formats.md has the formats.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    reader: Readers = None,
    columns: Columns = 64,
    passage_length: Annotated[
        int, typer.Option(help="Maximum characters of a passage; longer paragraphs are cut at sentence ends.")
    ] = 4000,
    passage_overlap: Annotated[
        int, typer.Option(help="Characters that two passages of a cut paragraph share, in whole sentences.")
    ] = 0,
    tokenizer: Annotated[
        Literal["words", "characters"],
        typer.Option(help="characters: words of any length, and each Chinese or Japanese character."),
    ] = "words",
    stemmer: Annotated[
        str, typer.Option(help="A language of Snowball, such as english: all forms of a word are one term.")
    ] = "",
    stop_words: Annotated[
        Literal["english", "none"],
        typer.Option(help="Words to leave out; use none for other languages than English."),
    ] = "english",
    vectors: Annotated[
        list[str] | None,
        typer.Option(help="Encode the passages too: dense, late, sparse:MODEL, KIND:MODEL; repeatable."),
    ] = None,
    strict: Strict = False,
) -> None:
    """Build the index of a corpus. Unreadable files are listed at the end, with the reason."""
    import pyfast

    with unread_listed() as on_unread, console().status("reading and indexing"):
        built = pyfast.build_index(
            sources,
            out,
            overwrite=overwrite,
            readers=reader or (),
            columns=columns,
            passage_length=passage_length,
            passage_overlap=passage_overlap,
            tokenizer=tokenizer,
            stemmer=stemmer,
            stop_words=stop_words,
            vectors=vectors or (),
            strict=strict,
            on_unread=on_unread,
        )
    print(f"{out}: {built.corpus.documents} documents, {len(built.passages)} passages, {len(built.terms)} terms")


@contextlib.contextmanager
def unread_listed() -> Iterator[Callable[[Unread], None]]:
    """Collect the files that were left out, and list them at the end, even after an error."""
    unread: list[Unread] = []
    try:
        yield unread.append
    except InputError:
        if len(unread) == 1:  # it is why, and all there is to say
            raise InputError(str(unread.pop())) from None
        raise
    finally:
        for it in unread:
            print(f"pyfast: left out {plain(it)}", file=sys.stderr)
