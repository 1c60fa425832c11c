"""What a text supports is believed, and nothing else: names in their forms, no pronouns."""

import json
import random
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from pyfast.knowledge.extraction_prompts import EntityFields, TripleFields
from pyfast.knowledge.rule_based import name_spans
from pyfast.knowledge.support import Dropped, is_pronoun, supported_mentions, supported_statements

TEXT = (
    "Pál Gábor (2 November 1932 – 21 October 1987) was a Hungarian film director. He met John F. Kennedy Jr. in"
    " the U.S., and Lin-Manuel Miranda, 1st Duke of Kent, in Germany on February 19 , 1993. 東京は日本の首都。"
)


def believed(head: str, tail: str, *texts: str) -> bool:
    triple = TripleFields(head=head, relation="r", tail=tail)
    return bool(supported_statements([triple], list(enumerate(texts or (TEXT,)))).statements)


def test_both_ends_stand_in_the_text_as_words() -> None:
    text = [(1, "Ann was born in Wyoming in 1969.")]
    ends = [("Ann", "Wyoming"), ("An", "Wyoming"), ("Ann", "196"), ("1969", "Ann"), ("Ann", "ann"), ("Ann", ",")]
    triples = [TripleFields(head=head, relation="r", tail=tail) for head, tail in ends]
    found = supported_statements(triples, text)
    assert [(said.head, said.tail) for said in found.statements] == [ends[0], ends[3]]
    assert found.dropped == [
        Dropped("not in the text", "An | r | Wyoming"),
        Dropped("not in the text", "Ann | r | 196"),
        Dropped("both ends are the same", "Ann | r | ann"),
        Dropped("empty", "Ann | r | ,"),
    ]
    named = [EntityFields(name=name, kind="", description="") for name in ("Ann", "Wyo", "She", "ann")]
    assert [mention.entity for mention in supported_mentions(named, text)] == ["Ann"]


FORMS = (
    "Hungary; Pal Gabor; November 2, 1932; 1932-11-02; November 1932; 19th of February 1993; John Kennedy"
    ";the U.S.; John Fitzgerald Kennedy; German; Lin Manuel Miranda; 東京; Gábor (director)"
    ";Miranda, the 1st Duke of Kent"
)
OTHERS = (
    "2 December 1932; November 1933; Gábor Pál; Germ; Hung; France; J. Miranda; Gábor, Kentucky; ; (director)"
    ";京都; Robert F. Kennedy; Lin Kent"
)


@pytest.mark.parametrize("name", FORMS.split(";"))
def test_other_forms_of_a_name_are_the_name(name: str) -> None:
    assert believed(name, "film")


@pytest.mark.parametrize("name", OTHERS.split(";"))
def test_other_names_are_not(name: str) -> None:
    assert not believed(name, "film")


def test_pronouns_name_nobody() -> None:
    assert not any(believed(head, "film") for head in ("He", "he", " It", "the director", "This film", "his wife"))
    assert not believed("film", "him", "A film about him.")
    assert not any(map(is_pronoun, ("US", "WHO", "IT", "The Matrix", "This Is It", "Hers and Yours", "the heart")))


def test_a_segment_that_names_both_comes_first() -> None:
    texts = [(7, "Ann sang."), (8, "Bob and Ann met."), (9, "Eve left.")]
    pairs = [("Ann", "Bob"), ("Eve", "Ann"), ("Ann", "Bob")]
    triples = [TripleFields(head=head, relation="knows", tail=tail) for head, tail in pairs]
    assert [said.segment for said in supported_statements(triples, texts).statements] == [8, 9]
    apart = [[text] for text in texts]
    assert [said.segment for said in supported_statements(triples, *apart).statements] == [8]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _published(folder: Path, even: bool) -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    """2Wiki's evidences with a passage in which each word of both ends stands."""
    passages = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    words = [set(_words(f"{passage['title']} {passage['text']}")) for passage in passages]
    for line in (folder / "questions.jsonl").read_text().splitlines():
        question = json.loads(line)
        if (blake2b(question["id"].encode()).digest()[-1] % 2 == 0) != even:
            continue
        for head, relation, tail in question.get("evidences") or ():
            wanted = set(_words(f"{head} {tail}"))
            places = [i for i, said in enumerate(words) if wanted <= said]
            if places:
                yield (head, relation, tail), max((passages[i] for i in places), key=lambda p: p["title"] == head)


def _other(passage: dict[str, Any], tail: str, drawn: random.Random) -> str:
    """Another entity of the passage, in a triple's place."""
    text = passage["text"]
    names = sorted({text[slice(*span)] for span in name_spans(text)} - {tail, passage["title"]})
    return drawn.choice(names or [passage["title"]])


def test_published_evidences_are_believed_and_those_of_pronouns_are_not(data: Path) -> None:
    drawn = random.Random(1)
    published = list(_published(data / "2wiki", even=True))
    right = drawn.sample(published, min(len(published), 200))
    assert len(right) > 80

    def count(triples: list[tuple[tuple[str, str, str], dict[str, Any]]]) -> int:
        return sum(believed(head, tail, f"{at['title']} {at['text']}") for (head, _, tail), at in triples)

    pronouns = [
        ((drawn.choice(("He", "She", "It", "they", "The film", "His father")), relation, tail), at)
        for (_, relation, tail), at in right
    ]
    exchanged = [((_other(at, tail, drawn), relation, tail), at) for (_, relation, tail), at in right]
    true, false, wrong = count(right), count(pronouns), count(exchanged)
    print(
        f"{true} of {len(right)} published triples believed, {false} of {len(pronouns)} with pronouns, {wrong} of"
        f" {len(exchanged)} with another name of the passage as their head: what stands in a text is believed"
    )
    assert true / len(right) >= 0.9 and true / (true + false) >= 0.95
