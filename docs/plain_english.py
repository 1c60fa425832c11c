"""Find phrases that make a reader stop, in documentation, docstrings, messages, prompts and comments.

python docs/plain_english.py            # prints FILE:LINE, the phrase, and what to write; fails if it finds any
python docs/plain_english.py FILE...    # only these files
"""

from __future__ import annotations

import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A phrase, as a regular expression in small letters, and what to write in its place.
BANNED = {
    r"anew": "again",
    r"are told": "name who does it: `X says`, `X gets`",
    r"as it comes": "by default",
    r"at an end": "finished",
    r"before it is too late": "in time",
    r"begun": "started",
    r"for (?:he|she|it|they|there) (?:has|have|is|are|was|were|would|may|can|cannot|could)": "because",
    r"gives? (?:it |them )?(?:away|back to)": "release, return",
    r"go(?:es|ne)? on with": "resume, continue with",
    r"gone on": "continued",
    r"hold(?:s|ing)? [\w ]{1,20} against": "compare with",
    r"in work": "in progress",
    r"is done without": "is left out",
    r"is (?:said|told)(?! apart)": "name who does it: `X says`, `X gets`",
    r"it would else": "otherwise",
    r"lest": "so that ... not",
    r"let go of": "release",
    r"of no use": "not useful",
    r"or it would": "otherwise",
    r"put right": "correct",
    r"that are there": "existing",
    r"thereby|therein|thereof|whereby|wherein": "by it, in it, of it",
    r"to be had": "available",
    r"to which end": "for this",
    r"wants? (?:a|an|the|other|more|several|no|to be)": "needs",
    r"were it not": "if it were not",
    r"whatever (?:it|he|she|they|is|was|has|the|a|was)": "name it, or `any`",
    r"whoever": "anyone who, the user who",
    r"would else": "otherwise",
}
_PHRASE = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
# Words that the search itself must contain.
_OWN = {Path(__file__).resolve(), ROOT / "pyfast/utils/stop_words.py"}
TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "mkdocs.yml",
    "pyproject.toml",
    "docs/**/*.md",
    "docs/*.ipynb",
)
CODE = ("*.py", "pyfast/**/*.py", "tests/**/*.py", "docs/*.py", "examples/*.py", "benchmarks/*.py")
NATIVE = ("tests/**/*.[hc]pp", "csrc/**/*.[hc]pp", "csrc/**/*.cu*", "bindings/**/*.[hc]pp", "examples/cpp/*.cpp")


def of_python(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of a file's comments and strings, a line of a long string each."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in kinds:
                text = token.string
                yield token.start[0], re.sub(r"\{[^{}]*\}", "{}", text) if re.match(r"[rR]?[fF]", text) else text


def of_native(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of a file's comments and strings."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        yield from ((number, part) for part in re.findall(r"//.*|\"(?:[^\"\\]|\\.)*\"|^\s*\*.*", line))


def of_text(path: Path) -> Iterator[tuple[int, str]]:
    """The whole file: a phrase may stand on two lines."""
    yield 1, path.read_text(encoding="utf-8")


def faults(path: Path) -> Iterator[str]:
    """One line for each banned phrase of a file."""
    read = (
        of_python
        if path.suffix == ".py"
        else of_native
        if path.suffix in (".hpp", ".cpp", ".cu", ".cuh")
        else of_text
    )
    for first, text in read(path):
        # One space in place of each line break and its indent, so that a phrase may stand on two lines.
        flat = re.sub(r"\n[ \t]*(?:#|//|\*)?[ \t]?", lambda gap: " " + "\0" * (len(gap[0]) - 1), text).replace(
            "\0", ""
        )
        for found in _PHRASE.finditer(flat):
            line = first + _line_breaks_before(text, found[0])
            yield f"{path.relative_to(ROOT)}:{line}: {found[0]!r}: write {advice(found[0])}"


def _line_breaks_before(text: str, phrase: str) -> int:
    words = r"\s+(?:#|//|\*)?\s*".join(map(re.escape, phrase.split()))
    place = re.search(words, text)
    return text.count("\n", 0, place.start()) if place else 0


def advice(phrase: str) -> str:
    """What to write in place of a phrase."""
    return next(plain for banned, plain in BANNED.items() if re.fullmatch(banned, phrase, re.IGNORECASE))


def main() -> int:
    """Print the faults; 1 if there are any."""
    given = [Path(name).resolve() for name in sys.argv[1:]]
    every = (path for pattern in (*TEXTS, *CODE, *NATIVE) for path in sorted(ROOT.glob(pattern)))
    count = 0
    for path in given or every:
        if path not in _OWN:
            for fault in faults(path):
                print(fault)
                count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
