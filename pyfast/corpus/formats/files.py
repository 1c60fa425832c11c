"""Read text files in any encoding. Refuse files with a huge content, and published question sets, which contain
answers."""

from __future__ import annotations

import codecs
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from pyfast.corpus.rendering import TERMINAL
from pyfast.errors import InputError
from pyfast.utils.log import LOG

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # UTF-32 comes first, because its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Files that people rename, or that servers send packed
_BINARY = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "ZIP or Office",
    b"%PDF-": "PDF",
    b"{\\rtf": "RTF",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"\xd0\xcf\x11\xe0": "Microsoft Office 97",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}
_HEAD = 1 << 9
_GUESSED: ContextVar[list[str] | None] = ContextVar("_GUESSED", default=None)
_CERTAIN = ("utf-8", "utf-16-le", "utf-16-be")
_SAMPLE = 1 << 16
_SELDOM = ("hp_", "mac_", "cp0", "cp1006", "cp1140", "cp4", "cp5", "cp7", "cp8", "kz", "ptcp", "tis")
_SIGNS = "€°§«»‹›–—’‘‚“”„…•·™®©†‡‰±\xa0"
_WESTERN = frozenset(f"{_SIGNS}¿¡ªº²³àáâãäåæçèéêëìíîïñòóôõöøœßùúûüýÿšžÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØŒÙÚÛÜÝŠŽ")
_ICELANDIC = frozenset(f"{_SIGNS}áæåäðéíóöøúüýþÁÆÅÄÐÉÍÓÖØÚÜÝÞ")
_CENTRAL = frozenset(f"{_SIGNS}áâăąäćčçďđéęěíîľĺłńňóôőöřśšşťţúůűüýźżžß" + "ÁÂĂĄÄĆČÇĎĐÉĘĚÍÎĽĹŁŃŇÓÔŐÖŘŚŠŞŤŢÚŮŰÜÝŹŻŽ")
_TURKISH, _AS_IN_WESTERN = frozenset("ğışĞİŞ"), frozenset(f"{_SIGNS}âçîöûüÂÇÎÖÛÜ")
# What no text in these encodings contains: three letters beyond ASCII in a row; a sign or capital letter within a
# word, where the encodings of DOS and Macintosh have letters; thorn and eth where Turkish has letters.
_UNLIKELY = re.compile(
    r"[^\W\d_\x00-\x7f]{3}|(?<=[^\W\d_])[‚„“”…†‡‰‹›•™²³ºª](?=[^\W\d_])|(?<=[^\W\d_])þ|\bð"
    r"|(?<=[a-z])[À-ÞŸĀĂĄĆČĎĐĘĚĞİŁŃŇŐŘŚŞŠŤŢŮŰŹŻŽ]"
)
# What a text in cp1250 looks like in cp1252, such as `teèe` for `teče`, and what only texts in cp1252 have. The
# neighbours of a letter tell: è stands between consonants in French, and beside vowels in Czech, where it is č.
_VOWEL, _CONSONANT = "[aeiouyáéíóúýůäëö]", "[b-df-hj-np-tv-xz]"
_CENTRAL_SIGNS = re.compile(
    rf"[èæ](?={_VOWEL})|ø(?=[aeiouáéíóúù])|(?<={_VOWEL})[èøæ³]|\bè(?=[^\W\d_])|[ãêûì](?![^\W\d_])"
    rf"|[ãû](?={_CONSONANT})|(?<={_CONSONANT})ù|[ñœ](?!{_VOWEL})|(?<=[^\W\d_])¿|ì(?=\w)|[šž]"
)
_HUNGARIAN_O = re.compile("õ(?!e)")  # In Portuguese, õ stands before e, and Estonian has many ä.
_WESTERN_SIGNS = re.compile(
    rf"[àåïðþ]|(?<={_CONSONANT})[èøæ](?={_CONSONANT})|ã(?=[eo])|õ(?=e)|\bè\b|\bê|[øæ]\b|[ñœ](?={_VOWEL})"
    rf"|(?<![^\W\d_])[¿¡]|ò\b|(?<={_VOWEL})ù\b"
)
_FEW = 20
_ODD = 0.02  # the share of letters from other languages in a long text
_RETURN = re.compile(r"\r(?!\n)")
_TERMINAL = re.compile(TERMINAL)
_OVERSTRUCK = re.compile(r"[^\n\x08]\x08")  # bold and underlined letters of manual pages


def refuse_binary(path: Path, data: bytes | None = None) -> None:
    """Raise `InputError` if a text file begins like a file of another format, or contains only zero bytes. `data`
    is the content of the file, if it is already read."""
    if data is None:
        with path.open("rb") as file:
            data = file.read(_HEAD)
    for first, name in _BINARY.items():
        if data.startswith(first):
            raise InputError(f"{path}: this is a {name} file, not text; give it the extension of its format")
    if data[:1] == b"\0" and not data.strip(b"\0"):
        raise InputError(f"{path}: this file contains only zero bytes; copy or download it again")


def not_text(path: Path) -> InputError:
    """Return the error for a file that is not text in any encoding."""
    why = "this is not text in an encoding that pyfast knows; if it is not a binary file, save it as UTF-8"
    return InputError(f"{path}: {why}")


def read_text(path: Path) -> str:
    """Read a text file, without codes for terminals, the first of two letters in one place, and the Ctrl-Z at the
    end of files from DOS.

    A byte order mark gives the encoding. Without such a mark, the file is read as UTF-8, or in an encoding that
    is guessed from its bytes. Raises InputError if the file is binary or damaged UTF-8, or no encoding can be
    found.
    """
    text = _OVERSTRUCK.sub("", _read(path).rstrip("\x1a"))
    return _TERMINAL.sub("", text) if "\x1b" in text else text


def _read(path: Path) -> str:
    data = path.read_bytes()
    refuse_binary(path, data)
    for bom, marked in _BOMS:
        if data.startswith(bom):
            return _decoded(path, data, marked, len(bom))
    encoding, text = guessed(data)
    if text is not None:
        return text
    if encoding is None:
        raise not_text(path)
    if encoding not in _CERTAIN:
        if (later := _GUESSED.get()) is None:
            tell_encoding(path, encoding)
        else:
            later.append(encoding)
    return _decoded(path, data, encoding)


@lru_cache(256)  # A file is read more than once, but one message is enough.
def tell_encoding(path: Path, encoding: str) -> None:
    LOG.info("%s: read as %s", path, encoding)


@contextmanager
def guessed_encodings() -> Iterator[list[str]]:
    """Yield a list to which `read_text` adds guessed encodings in the `with` block, instead of logging them."""
    before = _GUESSED.set(found := list[str]())
    try:
        yield found
    finally:
        _GUESSED.reset(before)


def with_line_ends(text: str) -> str:
    """Replace carriage returns that end lines without a line feed, as in files of old programs, by line feeds."""
    return _RETURN.sub("\n", text) if "\r" in text else text


def guessed(data: bytes) -> tuple[str | None, str | None]:
    """Return the encoding that the bytes of a text without a byte order mark suggest, and the text if it was
    decoded to find it. The encoding is None if there is none."""
    if (wide := _without_bom(data)) is not None:
        return wide, None
    try:
        return "utf-8", data.decode()
    except UnicodeDecodeError as error:
        start = error.start
    if _mostly_utf8(data):
        return "utf-8", None
    return None if b"\0" in data else _detected(data, start), None


def _without_bom(data: bytes) -> str | None:
    """Recognise UTF-16 by its zero bytes: in Western text, every second byte is zero. Returns the encoding,
    or None if the data is not UTF-16.
    """
    half = len(data[:_SAMPLE]) // 2
    if len(data) % 2 or not half:
        return None
    high, low = (data[first:_SAMPLE:2].count(0) for first in (0, 1))
    if max(high, low) < half * 0.3 or min(high, low) > half * 0.1:
        return None
    return "utf-16-be" if high > low else "utf-16-le"


def _decoded(path: Path, data: bytes, encoding: str, skipped: int = 0) -> str:
    try:
        return data[skipped:].decode(encoding)
    except UnicodeDecodeError as error:
        offset, named = skipped + error.start, encoding.upper()
        line = data.count(b"\n", 0, offset) + 1
        what = f"not valid {named}: byte 0x{data[offset]:02x} at offset {offset}; save it as UTF-8"
        raise InputError(f"{path}, line {line}: {what}") from None


def _mostly_utf8(data: bytes) -> bool:
    """Whether the data is UTF-8 with a few broken bytes. Other encodings hardly ever look like UTF-8."""
    text = data.decode(errors="replace")
    broken = text.count("\ufffd")
    return sum(map(text.count, "éèüöäßñçáíóúãâêôàïøåæœ–—’“”…€°")) > 2 * broken


def _nearest(data: bytes) -> str | None:
    """Return the Windows encoding of data that looks like a text of western or central Europe or like Turkish, or
    else None. Such a text has hardly any letters and signs of other languages, and hardly anything unlikely."""

    def fits(encoding: str, letters: frozenset[str]) -> bool:
        text = data.decode(encoding, errors="replace")
        beyond = [character for character in text if character > "\x7f"]
        odd = sum(it not in letters for it in beyond) + len(_UNLIKELY.findall(text))
        return odd <= _ODD * len(beyond)

    if (
        fits("cp1254", _TURKISH | _AS_IN_WESTERN)
        and len(_TURKISH.intersection(data.decode("cp1254", "replace"))) > 1
    ):
        return "cp1254"
    is_central = fits("cp1250", _CENTRAL)
    if not (fits("cp1252", _WESTERN) or fits("cp1252", _ICELANDIC)):
        return "cp1250" if is_central else None
    text = data.decode("cp1252", errors="replace").lower()
    central, western = (len(signs.findall(text)) for signs in (_CENTRAL_SIGNS, _WESTERN_SIGNS))
    if text.count("á") > text.count("ä"):
        central += len(_HUNGARIAN_O.findall(text))
    return "cp1250" if is_central and central > western else "cp1252"


def _detected(data: bytes, at: int) -> str | None:
    from charset_normalizer import from_bytes

    start = max(at - _SAMPLE // 2, 0)
    sample = data[start : start + _SAMPLE]
    # Statistics need more than a few characters: they take "año" for Chinese.
    if sum(byte > 127 for byte in sample) <= _FEW and (nearest := _nearest(sample)):
        return nearest
    guesses = from_bytes(sample)
    best = guesses.best()
    if best is None:
        return None
    # Encodings of one byte differ in a few characters. If none of them occurs, take the likeliest.
    names = {best.encoding, *best.could_be_from_charset, *(match.encoding for match in guesses)}
    is_likely = "cp1252" in names or "cp1250" in names or best.encoding.startswith(_SELDOM)
    return (is_likely and not best.multi_byte_usage and _nearest(sample)) or best.encoding


MOST_CELLS = 20_000_000
_ALWAYS = 1 << 28
_GROWTH = 200
_MOST = 1 << 32
_BASE = 220_000_000
_TIMES = 3
_WHOLE = {".txt", ".text", ".md", ".markdown", ".csv", ".tsv", ".json", ".html", ".htm", ".xhtml"}
_WHOLE |= {".nt", ".ttl", ".turtle"}


def check_cells(path: Path, cells: int) -> None:
    """Raise InputError if a table has too many cells."""
    if cells > MOST_CELLS:
        raise InputError(f"{path}: a table has more than {MOST_CELLS:,} cells; split it into several files")


def check_growth(path: Path, packed: int, unpacked: int) -> None:
    """Raise InputError if the unpacked content of a file is far larger than the file."""
    if unpacked > _MOST or unpacked > max(_ALWAYS, _GROWTH * packed):
        raise InputError(
            f"{path}: {packed:,} bytes unpack to {unpacked:,} or more, which is suspiciously large;"
            " unpack the file first"
        )


_MAIN = "_rels/.rels"


def check_archive(path: Path) -> None:
    """Raise `InputError` if a file in the archive unpacks to far more bytes than it takes in the archive, if
    Office has encrypted the file, or if it is in the Strict format. Raise `BadZipFile` if the file is not an
    archive.
    """
    with path.open("rb") as file:
        if file.read(8) == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":  # an OLE container
            raise InputError(
                f"{path}: the file is password-protected, or has a format from before Office 2007; save it again"
                f" as {path.suffix.lower()} without a password"
            )
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            check_growth(path, part.compress_size, part.file_size)
        if _MAIN in archive.namelist() and b"//purl.oclc.org/ooxml/" in archive.read(_MAIN):
            suffix = path.suffix.lower()
            raise InputError(f"{path}: the file is a Strict Open XML file; save it again as an ordinary {suffix}")


def check_memory(path: Path, size: int, memory: int) -> None:
    """Raise InputError if a file of `size` bytes cannot be read in `memory` MB.

    Text, tables, JSON and RDF are in memory as a whole: as bytes, as characters and as the content of the index.
    So they take at least three times their size, in addition to the program itself.
    """
    needed = (_BASE + _TIMES * size) // 1_000_000 + 1
    if path.suffix.lower() in _WHOLE and needed > memory:
        raise InputError(
            f"{path}: this file of {size // 1_000_000:,} MB needs at least {needed:,} MB of memory, but the limit "
            f"is {memory:,} MB; split the file, or allow more memory (--memory)"
        )


_EXAMINED = 1 << 16  # the number of bytes that are examined
_SUFFIXES = (".json", ".jsonl", ".txt", ".tsv")
# Sets of keys. A file is recognized by the first set that its first record has.
_KEYS = {
    "2wiki": ("_id", "context", "question", "evidences"),
    "hotpotqa": ("_id", "context", "question"),
    "musique": ("paragraphs", "paragraph_text", "question"),
    "tatqa": ("table", "paragraphs", "questions", "uid"),
    "convmix": ("conv_id", "questions"),
    "ottqa": ("question_id", "question", "table_id", "version"),
    "hybridqa": ("question_id", "question", "table_id"),
    "triviaqa": ("QuestionId", "Question"),
}
_KEY = re.compile(rb'"(\w+)"\s*:')
_METAQA = re.compile(rb"[^\t\n]*\[[^\]\t\n]+\][^\t\n]*\t[^\t\n]+\r?(\n|$)")
_METAQA_GRAPH = re.compile(rb"[^|\n]+\|[a-z_]+\|[^|\n]+\r?\n[^|\n]+\|[a-z_]+\|[^|\n]+\r?\n")
_NQ = re.compile(rb'\s*\{\s*"question"\s*:\s*"[^\n]*"answer"\s*:\s*\[[^\n]*\]\s*\}\s*(\n|$)')


def published_set(path: Path) -> str | None:
    """Return the name of the published data set that has the layout of this file. Returns None for any other
    file."""
    if path.suffix.lower() not in _SUFFIXES:
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_EXAMINED).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return None  # The reader reports the error.
    if path.name == "queries.jsonl" and any((path.parent / "qrels").glob("*.tsv")):
        return "beir"
    if path.suffix.lower() == ".tsv":
        if path.parent.name == "qrels" and (path.parent.parent / "queries.jsonl").is_file():
            return "beir"
        first = head.partition(b"\n")[0].split(b"\t")
        return "popqa" if {b"question", b"possible_answers"} <= set(first) else None
    if path.suffix.lower() == ".txt":
        return "metaqa" if _METAQA.match(head) or _METAQA_GRAPH.match(head) else None
    if not head.lstrip().startswith((b"[", b"{")):
        return None
    keys = {key.decode() for key in _KEY.findall(head)}
    name_of_set = next((name for name, wanted in _KEYS.items() if keys.issuperset(wanted)), None)
    return name_of_set or ("nq" if _NQ.match(head) else None)


def refuse_published(path: Path) -> None:
    """Raise `InputError` for a file of a published set. The message names the command that converts the file."""
    name = published_set(path)
    if name is not None:
        command = f"`pyfast data convert {name} {path} --out DIR`"
        makes = f"{command} turns it into questions and gold answers, and a corpus if the set has one"
        raise InputError(f"{path}: this file belongs to the published data set {name}; {makes}")
