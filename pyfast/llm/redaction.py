"""Remove the API key and other secrets from texts that a server sends, even if the secrets are encoded."""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies

from pyfast.errors import InputError

HIDDEN = "***"
SHORTEST = 8  # characters; shorter keys, such as "EMPTY", occur in ordinary texts
_BEGINS = 6  # how many of a secret's first characters make a text count as its beginning
_ROUNDS = 4  # rounds of decoding, because a text may be escaped several times

# Escapes of URLs, JSON, Python, HTML and mail; then invisible characters, which may split a key.
_ESCAPE = re.compile(
    r"%[0-9A-Fa-f]{2}"
    r"|\\+(?:u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|[0-3][0-7]{2}|[nrtbf/\"'\\])"
    r"|&#?\w{1,8};"
    r"|=[0-9A-F]{2}"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\s+|[\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+"
)
_MAY_ESCAPE = re.compile(r"[%\\&=]|[^ -~]")
# Parts of a URL's path that look like a key: a known form, a UUID, or a long mixture of letters and digits.
_KEY_IN_PATH = re.compile(
    r"(?:sk|pk|rk|hf|gsk|key|token|secret)[-_=][^/]+"
    r"|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    r"|(?=[^/]*?[A-Za-z])(?=[^/]*?\d)[^/.:-]{16,}"
)
_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+\Z")
_SECRET_NAME = re.compile(
    r"key|auth|token|bearer|cookie|password|passwd|.*(?:apikey|secret|secretkey|accesskey|privatekey|authorization"
    r"|accesstoken|apitoken|authtoken|hftoken|credentials?|password)"
)


def hider(*secrets: str) -> Callable[[str], str]:
    """Make a function that replaces secrets in a text with `***`, even if they are encoded.

    The function finds secrets in percent encoding, in the escapes of JSON, Python, HTML and mail, and in
    nested encodings. It also finds secrets in hexadecimal digits and in base64, even if the secret is only a part
    of the encoded text. It ignores case, and white space and invisible characters inside a secret.

    Args:
        *secrets: The secrets. Those of fewer than 8 characters are ignored.

    Example:
        >>> hider("sk-test-4711")("key sk%2dtest-4711 refused")
        'key *** refused'
    """
    forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
    if not forms:
        return lambda text: text
    wanted = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))), re.IGNORECASE)

    lower = [form.lower() for form in forms]

    def is_in(text: str) -> bool:
        text = text.lower()
        return any(form in text for form in lower)

    def hidden(text: str) -> str:
        bare = "".join(text.split())  # White space may split a key, so the text is also searched without it.
        seen = is_in(text) or is_in(bare)
        for _ in range(_ROUNDS if _MAY_ESCAPE.search(bare) else 0):
            if seen or (further := _ESCAPE.sub(_meaning, bare)) == bare:
                break
            bare = further
            seen = is_in(bare)
        return _without(text, wanted) if seen else text

    return hidden


def revealed(*secrets: str) -> Callable[[str], str]:
    """Return a function that cuts off an unfinished text where a secret may begin, because `hider` finds only
    whole secrets. The function does not decode escapes.

    Example:
        >>> revealed("sk-test-4711")("key sk-tes")
        'key '
    """
    begins = {re.escape(form[:_BEGINS]) for one in secrets if len(one) >= SHORTEST for form in _forms(one)}
    if not begins:
        return lambda text: text
    wanted = re.compile("|".join(begins), re.IGNORECASE)
    return lambda text: wanted.split(text, 1)[0]


def _forms(secret: str) -> set[str]:
    """Return the forms in which a text can contain a secret: plain, hexadecimal and base64."""
    bare = re.sub(r"\s", "", secret)
    forms = {secret, bare, secret.encode().hex()}
    for before, lost in ((0, 0), (1, 2), (2, 3)):  # the key's position within a group of three bytes
        raw = b"\0" * before + secret.encode()
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            coded = encode(raw).rstrip(b"=").decode()
            forms.add(coded[lost : -1 if len(raw) % 3 else None])
    return forms


def _meaning(escape: re.Match[str]) -> str:
    """Return the characters for which an escape stands. The result is empty for invisible characters."""
    text = escape[0]
    if text[0] == "%":
        return unquote(text, errors="replace")
    if text[0] == "&":
        return html.unescape(text)
    if text[0] == "=":
        return chr(int(text[1:], 16))
    if text[0] != "\\":
        return ""
    text = text.lstrip("\\")
    if not text or text[0] in "nrtbf":
        return ""
    if text[0] in "ux":
        number = int(text[1:].strip("{}"), 16)
        return chr(number) if number < 0x110000 else ""
    return chr(int(text, 8)) if text[0].isdigit() else text


def _without(text: str, wanted: re.Pattern[str]) -> str:
    """Return the text with `***` in place of each secret. The function searches the text itself and the text
    with its escapes decoded."""
    spans: list[tuple[int, int]] = []
    decoded, starts, ends = text, list(range(len(text))), list(range(1, len(text) + 1))
    for _ in range(_ROUNDS + 1):
        spans += [(starts[match.start()], ends[match.end() - 1]) for match in wanted.finditer(decoded)]
        pieces, first, last, end = [], [], [], 0
        for escape in _ESCAPE.finditer(decoded):
            meaning = _meaning(escape)
            pieces += [decoded[end : escape.start()], meaning]
            first += starts[end : escape.start()] + [starts[escape.start()]] * len(meaning)
            last += ends[end : escape.start()] + [ends[escape.end() - 1]] * len(meaning)
            end = escape.end()
        decoded, starts, ends = "".join([*pieces, decoded[end:]]), first + starts[end:], last + ends[end:]
    left, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            left += [text[end:start], HIDDEN]
        end = max(end, stop)
    return "".join([*left, text[end:]])


def api_key() -> str:
    """Return the value of the environment variable OPENAI_API_KEY, or an empty text if it is not set.

    Raises `InputError` if the key has a character that an HTTP header cannot contain.
    """
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(
            "OPENAI_API_KEY contains a character that HTTP headers do not allow, such as a newline; set it again"
        )
    return key


def from_environment(option: str, given: Mapping[str, str] | None, key: str) -> tuple[dict[str, str], list[str]]:
    """Return the values of an option such as `headers`, and the secret ones among them.

    A value `$NAME` stands for the environment variable NAME, and is secret. `key` is the API key. Raises
    `InputError` if a value is not a string, contains a secret, or names an unset variable.
    """
    values: dict[str, str] = {}
    secrets: list[str] = []
    for name, value in (given or {}).items():
        can_be_sent = isinstance(value, str) and f"{name}{value}".isascii() and value.isprintable()
        if not can_be_sent or not _NAME.match(name):
            raise InputError(f"{option}: {name!r} and its value must be strings that an HTTP header can contain")
        if value.startswith("$"):
            found = os.environ.get(value[1:], "").strip()
            if not found:
                raise InputError(f"{option}: the environment variable {value[1:]} for {name!r} is not set")
            secrets.append(found)
            value = found
        elif _is_secret(name) or hider(key)(value) != value:
            variable = re.sub(r"\W", "_", name).upper()
            raise InputError(
                f"{option}: the value of {name!r} is a secret, and run.toml would record it; give ${variable} as"
                " the value, and set this environment variable"
            )
        values[name] = value
    return values, secrets


def _is_secret(name: str) -> bool:
    """Return whether the name of a field, such as `api_key`, suggests a secret."""
    return bool(_SECRET_NAME.fullmatch(re.sub(r"[-_ ]", "", name).lower()))


def keys_in(path: str) -> list[str]:
    """Find the parts of a URL's path that look like keys."""
    return [part for part in path.split("/") if _KEY_IN_PATH.fullmatch(part)]


def proxy_passwords() -> list[str]:
    """Return the passwords in the environment variables for proxies. Errors of aiohttp can contain the URL of a
    proxy with its password.
    """
    matches = (re.search(r"//[^/@:]*:([^@]+)@", url) for url in getproxies().values())
    return [match[1] for match in matches if match]


def check_no_secret(fields: Any, key: str, variable: str = "OPENAI_API_KEY") -> None:
    """Raise `InputError` if a field has a name such as `api_key`, or if a field contains the API key.

    pyfast stores all fields in the run's folder, so they must not contain secrets. `key` is the API key.
    `variable` is the environment variable that the message names as the place for the key.
    """
    if isinstance(fields, Mapping):
        for name, value in fields.items():
            if _is_secret(str(name)) and isinstance(value, str | int) and not isinstance(value, bool):
                raise InputError(
                    f"extra must not contain a secret such as {str(name)!r}, because run.toml would record it; put"
                    f" the key into {variable}"
                )
            check_no_secret([str(name), value], key, variable)
    elif isinstance(fields, list | tuple):
        for value in fields:
            check_no_secret(value, key, variable)
    elif isinstance(fields, str) and hider(key)(fields) != fields:
        raise InputError(
            f"extra contains the API key, and run.toml would record it; keep the key only in {variable}"
        )
