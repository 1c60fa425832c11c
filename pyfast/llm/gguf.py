"""Read the control tokens of a model from the header of its GGUF file, because llama.cpp cannot list them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CONTROL, _ADDED = 3, 4  # the types of tokens that llama.cpp finds in a text before it splits the rest
_WANTED = (b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type")
# the maximum number of bytes of a string, and of entries of an array; more means a damaged file
_LARGEST = 1 << 28


def control_tokens(path: Path) -> list[str]:
    """Return the control tokens and added tokens of the vocabulary in a GGUF file. The result is empty if the
    header of the file cannot be read."""
    fields: dict[bytes, Any] = {}
    try:
        with path.open("rb") as file:
            magic, version, _, count = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or version < 2:
                return []
            for _ in range(count):
                name = _string(file)
                (kind,) = struct.unpack("<I", file.read(4))
                value = _value(file, kind)
                if name in _WANTED:
                    fields[name] = value
                if len(fields) == len(_WANTED):
                    break
            tokens, types = (fields[name] for name in _WANTED)
            marked = [token for token, kind in zip(tokens, types, strict=True) if kind in (_CONTROL, _ADDED)]
            return [token.decode(errors="replace") for token in marked]
    except (OSError, struct.error, ValueError, LookupError, TypeError, AttributeError):
        return []  # llama.cpp itself reports what is wrong with the file.


def _string(file: BinaryIO) -> bytes:
    (size,) = struct.unpack("<Q", file.read(8))
    if size > _LARGEST:
        raise ValueError
    return file.read(size)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        of, size = struct.unpack("<IQ", file.read(12))
        if size > _LARGEST:
            raise ValueError
        if of in _FORMATS:
            form = f"<{size}{_FORMATS[of]}"
            return list(struct.unpack(form, file.read(struct.calcsize(form))))
        return [_value(file, of) for _ in range(size)]
    form = "<" + _FORMATS[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
