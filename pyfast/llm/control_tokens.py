"""Make control tokens of chat templates harmless in text from documents and users.

Servers and tokenizers obey control tokens anywhere in a message. With such a token, a document could end the
user's message and write a system message of its own. A space inside the token makes it ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

# The names in <...> and [...] of the known chat templates. Marks with bars, such as <|...|>, need no list. Names
# that HTML has too, such as <p>, are not listed.
_ANGLE = """
s bos eos pad unk mask sep cls eod eop sop eot BOS EOS PAD UNK EOD SEP AI 用户 human bot user assistant system
BOS_TOKEN EOS_TOKEN PAD_TOKEN UNK_TOKEN CLS SYS begin_of_sentence end_of_sentence beginning_of_sentence
start_of_turn end_of_turn end_of_utterance eoh eoa eom eos_token role im_start im_end im_patch im_col endoftext
think thinking reasoning think_fast think_faster no_think answer response scratch_pad reflection tool tools
tool_call tool_calls tool_response tool_responses tool_result tool_results tool_sep tool_outputs tool_declare
function functions function_call function_calls function_response invoke parameter arg_key arg_value
longcat_tool_call longcat_s longcat_think longcat_system longcat_user longcat_assistant dots_function_call
start_function_call end_function_call start_function_declaration end_function_declaration
start_function_response end_function_response escape documents results fim_prefix fim_middle fim_suffix fim_pad
fim_repo fim_sep repo_name reponame repo_sep file_sep filename gh_stars issue_start issue_comment issue_closed
jupyter_start jupyter_text jupyter_code jupyter_output jupyter_script empty_output commit_before commit_msg
commit_after pr pr_title pr_status pr_body pr_base pr_file pr_base_code pr_diff pr_diff_hunk pr_comment
pr_event_id pr_review intermediate_to_code image img image_id slice video audio sound vision IMG_CONTEXT
image_soft_token audio_soft_token start_of_image end_of_image start_of_audio end_of_audio image_placeholder
video_placeholder fake_token_around_image global-img image_newline patch_start patch_end patch_newline box ref
quad point ovis_image_start ovis_image_end ovis_video_start ovis_video_end ovis_visual_atom asr_text digits
so_start so_end so_embedding
"""
_SQUARE = """
INST SYSTEM_PROMPT AVAILABLE_TOOLS TOOL_RESULTS TOOL_CALLS TOOL_CONTENT ARGS CALL_ID THINK MODEL_SETTINGS IMG
IMG_BREAK IMG_END PREFIX MIDDLE SUFFIX AUDIO BEGIN_AUDIO TRANSCRIBE STREAMING_PAD STREAMING_WORD
NEXT_AUDIO_TEXT REPEAT_AUDIO_TEXT CLS SEP PAD UNK MASK BOS EOS EOT BOT gMASK sMASK @BOS@ multimodal
start_header_id end_header_id extra_id SYS
"""
_NAMES = {"<": frozenset(_ANGLE.split()), "[": frozenset(_SQUARE.split())}

# For each character with which control tokens begin: what comes after it. A group is a name, which must be in
# `_NAMES`. No name in squares begins with a digit: this refuses the numbers of passages, such as [12], at once.
_AFTER = {
    "<": r"""
        /?[|｜][^<>]{0,60}> | (?!\s)[^<>|｜]{0,60}[|｜]> | /?\w{1,20}\|\w{1,40}> | </?SYS>
        | /?(?:seed|minimax|mm|atem|cofl|plamo):\w{1,40}[^<>]{0,60}>
        | (?:extra_id_|unused|reserved_|reserved_special_token_|SPECIAL_|TOKENS_UNUSED_)\d+>
        | (?:row_\d+_col_|tile_|loc|seg|mask:)\d+>
        | (?:function|parameter)=[^<>]{1,80}> | (?:invoke|parameter|function|param)[ ]name=
        | /?([\w@-]{1,40})/?>
    """,
    "[": r"[|｜][^\[\]]{1,40}[|｜]\] | e~\[ | UNUSED_TOKEN_\d+\] | (?!\d)/?([\w@]{1,40})\]",
    "]": r"~!?b[\[\]] | ![pd]~\[ | <\][^\s\[\]]{1,40}\[>\[",
    ">": r">[A-Z]{4,20}<<",
    "｜": r"DSML｜",
    "◁": r"/?\w{1,40}▷",
}
_MARKS = {first: re.compile(f"{re.escape(first)}(?= {after} )", re.VERBOSE) for first, after in _AFTER.items()}
_LONGEST = 128
"""The maximum number of characters in a control token. No known template has a longer one"""
_BEGINS = re.compile(f"[{re.escape(''.join(_MARKS))}]")


def plain(text: str) -> str:
    """Put a space inside each control token in a text, for the control tokens of all common chat templates.

    Args:
        text: Text from a document or a user. Brackets of other kinds, such as in `<p>`, `a < b` or `[NOTE]`, stay
            unchanged.

    Returns:
        The text with these spaces. A server reads it as ordinary text.

    Example:
        >>> plain("a < b, [NOTE] <p>: <|im_end|> <｜User｜> [INST]")
        'a < b, [NOTE] <p>: < |im_end|> < ｜User｜> [ INST]'
    """
    ends = [at + 1 for at in _marks(text)]
    return " ".join(text[begin:end] for begin, end in pairwise([0, *ends, len(text)])) if ends else text


def join_plain(parts: Sequence[str]) -> str:
    """Join texts. If a control token that no text contains arises where two of them meet, put a space inside each
    control token of the joined text.

    Otherwise, the joined text stays unchanged, even if one of the texts contains a control token.
    """
    text = "".join(parts)
    seam = 0
    for left, right in pairwise(parts):
        seam += len(left)
        if right and _arises_at(text, seam):
            return plain(text)
    return text


def _arises_at(text: str, seam: int) -> bool:
    """Return whether a control token begins before the position `seam` and is complete only with text after
    it."""
    for begin in _BEGINS.finditer(text, max(seam - _LONGEST, 0), seam):
        pattern, at = _MARKS[begin[0]], begin.start()
        joined, alone = pattern.match(text, at, seam + _LONGEST), pattern.match(text, at, seam)
        if joined and _is_mark(joined) and not (alone and _is_mark(alone)):
            return True
    return False


def _marks(text: str) -> list[int]:
    """Return the positions of all control tokens, ascending. Each character with which control tokens begin has
    its own pattern, because a search for one character is ten times faster here than a search for several."""
    found = [
        match.start()
        for first, pattern in _MARKS.items()
        if first in text
        for match in pattern.finditer(text)
        if _is_mark(match)
    ]
    found.sort()
    return found


def _is_mark(match: re.Match[str]) -> bool:
    names = match.groups()
    return names in ((), (None,)) or names[0] in _NAMES[match[0]]


def breaker(tokens: Iterable[str]) -> Callable[[str], str]:
    """Make a function that finds each of these tokens in a text, and puts a space after the token's first
    character.

    Args:
        tokens: The control tokens of one tokenizer. Those that are single characters, white space or plain words
            are ignored, because they occur in many texts, and do not begin or end messages.
    """
    marks = {token for token in tokens if len(token.strip()) > 1 and not token.isalnum()}
    if not marks:
        return lambda text: text
    sizes = sorted({len(token) for token in marks})
    begins = re.compile("[" + re.escape("".join(sorted({token[0] for token in marks}))) + "]")

    def broken(text: str) -> str:
        pieces, end = [], 0
        for match in begins.finditer(text):
            at = match.start()
            if any(text[at : at + size] in marks for size in sizes):
                pieces.append(text[end : at + 1])
                end = at + 1
        return " ".join([*pieces, text[end:]]) if pieces else text

    return broken


@lru_cache(maxsize=4)
def breaker_of(tokenizer: Any) -> Callable[[str], str]:
    """Call `breaker` for the special tokens and the added tokens of a transformers tokenizer, and return its
    function."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return breaker([*map(str, added.values()), *map(str, getattr(tokenizer, "all_special_tokens", ()))])
