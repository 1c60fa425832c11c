"""A reader that knows the gold plan and the gold answer, and says only what stands in the prompt that it is sent.

So what it does not answer, the evidence does not hold, or the system does not let it say.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pyfast import Index, Record
from pyfast.evaluation.metrics import exact_match, normalise, set_overlap
from pyfast.llm import Completion, Request
from pyfast.systems import load_system
from pyfast.systems.prompts import INSUFFICIENT

SYSTEMS = ("n2n", "hseq", "iter_retgen", "ircot", "self_ask", "react", "hipporag")
PROMPTS = {prompt.system: prompt.name for name in SYSTEMS for prompt in load_system(name).prompts}
_WINDOW = re.compile(r"(?m)^\[(\d+)\] (.*)$")
_LABEL = re.compile(r"(?m)^\[\d+\] ")
_HEAD = re.compile(r"(.*)\nQuestion: (.*)\nUse at most (\d+) characters for the answer\.$", re.DOTALL)
_FOLLOW_UP, _SENTENCE, _REASONING = 200, 280, 800  # characters that a sentence and steps of reasoning may have
_ENTITY = 120  # characters that an entity may have


class Oracle:
    """Plans as the data set's decompositions do, where it has such."""

    spec = fingerprint = "oracle"
    context_window = 32_768
    slots = 1000

    def __init__(self, golds: Sequence[dict[str, Any]], facts: Iterable[tuple[str, str, str]] = ()) -> None:
        """`facts`: the triples that the golds' `path`s lead over."""
        self.golds = {gold["question"]: gold for gold in golds}
        self.leads: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for head, relation, tail in facts:
            self.leads[relation][head].append(tail)
            self.leads[f"~{relation}"][tail].append(head)
        self.found: dict[str, list[str]] = {}  # a filled query: what it looks for
        self.clues = {gold["question"]: self._clues(gold) for gold in golds}

    async def complete(self, request: Request) -> Completion:
        reply = getattr(self, PROMPTS[request.messages[0].content])(request.messages[-1].content)
        return Completion(json.dumps(reply), "stop")

    def plan(self, said: str) -> dict[str, Any]:
        gold = self.golds[said.rpartition("\nQuestion: ")[2]]
        if "path" in gold:
            names = [gold["topic_entity"], "{entity1}", "{entity2}"]
            chain = [asked(name, relation) for name, relation in zip(names, gold["path"], strict=False)]
            return planned(chain)
        steps = gold.get("decomposition") or []
        first = {f"#{at}": step["answer"] for at, step in enumerate(steps[:-3], start=1)}  # a plan has three hops
        chain, beside = [], []
        for step in steps[-3:]:
            query = step["question"].replace(" >> ", " ")
            for place, answer in first.items():
                query = query.replace(place, answer)
            self.found[query] = self.found[re.sub(r"#\d", "#", query)] = [step["answer"]]
            query = re.sub(r"#(\d)", lambda m: f"{{entity{int(m[1]) - len(first)}}}", query)
            for at, earlier in enumerate(steps[-3:], start=1):
                filled = query.replace(f"{{entity{at}}}", earlier["answer"])
                self.found[filled] = [step["answer"]]
            (chain if not chain or "{entity" in query else beside).append(query)
        return planned(chain or [gold["question"]], beside)

    def extract(self, said: str) -> dict[str, Any]:
        evidence, _, query = said.rpartition("answers this? ")
        looked_for = self.found.get(query) or [
            name
            for relation in self.leads
            for head in query.removesuffix(words(relation)).split("; ")
            if query.endswith(words(relation))
            for name in self.leads[relation].get(head, ())
        ]
        entity = ""
        for name in in_words_of(evidence, looked_for):
            if len(longer := f"{entity}; {name}".removeprefix("; ")) <= _ENTITY:
                entity = longer
        return {"entity": entity}

    def answer(self, said: str) -> dict[str, Any]:
        evidence, _, question = said.partition("Evidence:\n")[2].rpartition("Question: ")
        return {"answer": self._read(question, evidence)}

    def reasoned_answer(self, said: str) -> dict[str, Any]:
        evidence, _, question = said.partition("Evidence:\n")[2].rpartition("\n\nThink step by step.\nQuestion: ")
        clues = in_words_of(evidence, self.clues[question])
        return {"reasoning": "; ".join(clues)[:_REASONING], "answer": self._read(question, evidence)}

    def sentence(self, said: str) -> dict[str, Any]:
        evidence, _, asked = said.removeprefix("Evidence:\n").rpartition("\n\nQuestion: ")
        question, _, _ = asked.rpartition("\nYour sentences: ")
        missing = self._missing(question, _LABEL.sub("", evidence))
        return {"sentence": f"Then, {missing[:_SENTENCE]}." if missing else "So the answer is known."}

    def follow_up(self, said: str) -> dict[str, Any]:
        question, _, notes = said.rpartition("\n\nQuestion: ")[2].partition("\n")
        found = "\n".join(re.findall(r"(?m)^Intermediate answer: (.*)$", notes))
        if missing := self._missing(question, found):
            return {"follow_up": missing[:_FOLLOW_UP], "answer": ""}
        return {"follow_up": "", "answer": self._read(question, found)}

    def act(self, said: str) -> dict[str, Any]:
        question, _, notes = said.removeprefix("Question: ").partition("\n")
        seen = _LABEL.sub("", "\n".join(re.findall(r"(?ms)^Observation \d+: (.*?)(?=^Thought |\Z)", notes)))
        if missing := self._missing(question, seen):
            return {"thought": "It is missing.", "action": "search", "input": missing[:_SENTENCE]}
        return {"thought": "It is known.", "action": "finish", "input": self._read(question, seen)}

    def conclude(self, said: str) -> dict[str, Any]:
        notes, _, question = said.removeprefix("Notes:\n").rpartition("\n\nQuestion: ")
        return {"answer": self._read(question, notes)}

    def recognise(self, said: str) -> dict[str, Any]:
        facts, _, question = said.removeprefix("Facts:\n").rpartition("\n\nQuestion: ")
        worth = [*self.clues[question], *self.golds[question]["answers"]]
        useful = []
        for number, _, fact in (line.partition(". ") for line in facts.split("\n")):
            names = [name for end in fact.split(" | ")[::2] for name in end.split("; ")]
            if in_words_of(fact, worth) or in_words_of(question, names):
                useful.append(int(number))
        return {"useful": useful}

    def _missing(self, question: str, evidence: str) -> str:
        """The first step whose answer the evidence does not hold, as a query. Empty if it holds all."""
        gold = self.golds[question]
        if "path" in gold:
            names = [gold["topic_entity"]]
            for relation in gold["path"]:
                led = list(dict.fromkeys(name for one in names for name in self.leads[relation].get(one, ())))
                found = [name for name in led if stands(name, evidence)]
                if len(found) < len(led):
                    return asked("; ".join(names), relation)
                names = found
            return ""
        known: dict[str, str] = {}
        for at, step in enumerate(gold.get("decomposition") or [], start=1):
            if not stands(step["answer"], evidence):
                query = step["question"].replace(" >> ", " ")
                query = re.sub(r"#\d", lambda place: known.get(place[0], place[0]), query)
                self.found[query] = [step["answer"]]
                return query
            known[f"#{at}"] = step["answer"]
        return ""

    def head(self, said: str) -> dict[str, Any]:
        evidence, question, most = _HEAD.findall(said)[-1]
        return {"answer": self._read(question, evidence)[: int(most)], "supporting": []}

    def _read(self, question: str, evidence: str) -> str:
        gold = self.golds[question]
        known = in_words_of(_LABEL.sub("", evidence), gold["answers"])
        return ("; ".join(known) if is_set(gold) else known[0]) if known else INSUFFICIENT

    def guide(self, said: str) -> dict[str, Any]:
        return {"first_look": "what names the answer", "expansion": "", "stop": "all answers"}

    def select(self, said: str) -> dict[str, Any]:
        question, _, shown = said.removeprefix("Question: ").partition("\n")
        before, _, window = shown.partition("Candidates:\n")
        k = int(said.rpartition("At most ")[2].rstrip("."))
        answers, clues = self.golds[question]["answers"], self.clues[question]
        worth = {
            int(label): 10 * sum(stands(answer, text) for answer in answers)
            + sum(stands(clue, text) for clue in clues)
            for label, text in _WINDOW.findall(window)
        }
        picked = sorted((label for label in worth if worth[label]), key=lambda label: (-worth[label], label))[:k]
        lines = dict(_WINDOW.findall(window))
        seen = before + "".join(lines[str(label)] for label in picked)
        every = all if is_set(self.golds[question]) else any
        done = every(stands(answer, seen) for answer in answers)
        args = {"segment_ids": picked, "strategy": "guided_topk" if done else "relation", "top_k": k}
        return {"type": "select" if done else "expand", "args": args, "sufficiency": done}

    def _clues(self, gold: dict[str, Any]) -> list[str]:
        """What stands between the question and its answer."""
        if "path" in gold:
            reached, clues = [gold["topic_entity"]], list[str]()
            for relation in gold["path"]:
                clues += reached
                reached = list(
                    dict.fromkeys(name for one in reached for name in self.leads[relation].get(one, ()))
                )
            return clues[:200]
        return [step["answer"] for step in gold.get("decomposition") or []]


def planned(chain: Sequence[str], beside: Sequence[str] = ()) -> dict[str, Any]:
    first, second, third = (*chain, "", "")[:3]
    texts = {"query": first, "second_query": second, "third_query": third, "alternatives": list(beside[:2])}
    return {"hops": len(chain[:3]), "entity_type": "name", **texts}


def words(relation: str) -> str:
    """A relation as a query has it, behind a name."""
    return f" {relation.removeprefix('~').replace('_', ' ')}"


def asked(name: str, relation: str) -> str:
    return name + words(relation)


def is_set(gold: dict[str, Any]) -> bool:
    """Whether the answers are to be given all; else they are forms of one."""
    return gold.get("answer_mode") == "all"


def exact(gold: dict[str, Any], answer: str | None) -> float:
    """1 if the answer is a gold answer, or where they are a set all of them; else 0."""
    if is_set(gold) or answer is None:
        return set_overlap(answer, gold["answers"])[0]
    return max((exact_match(answer, right) for right in gold["answers"]), default=0.0)


def holds(gold: dict[str, Any], record: Record, index: Index) -> bool:
    """Whether the evidence of a record holds the answer, all of it where it is a set."""
    segments = np.array([int(it.segment, 16) for it in record.evidence], np.uint64)
    places = np.flatnonzero(np.isin(index.corpus.ids[:], segments)).tolist()
    evidence = "\n".join(map(index.corpus.render, places))
    return (all if is_set(gold) else any)(stands(answer, evidence) for answer in gold["answers"])


def stands(name: str, text: str) -> bool:
    """Whether it stands there in whole words, as exact match compares them."""
    return _words(name)[0] in _words(text)[0]


def in_words_of(text: str, names: Iterable[str]) -> list[str]:
    """Those of the names that stand in a text, each once and as the text spells it."""
    words, places = _words(text)
    found = []
    for name in dict.fromkeys(names):
        wanted, size = _words(name)[0], len(_words(name)[1])
        if size and (at := words.find(wanted)) >= 0:
            first = words.count(" ", 0, at)
            found.append(text[places[first][0] : places[first + size - 1][1]].strip(".,;:!?()[]\"'|"))
    return found


@lru_cache(1 << 14)
def _words(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The words as exact match compares them, blanks before, between and behind; where each of them stands."""
    parts = [(normalise(part[0]), part.span()) for part in re.finditer(r"\S+", text)]
    return f" {' '.join(word for word, _ in parts if word)} ", [span for word, span in parts if word]
