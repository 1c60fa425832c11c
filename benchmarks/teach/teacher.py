# ruff: noqa: E501
"""A teacher that needs no large model: it knows the gold plan and the gold answer, and says only what stands in the
prompt that it is sent (`tests/oracle.py`). What it was sent and what it said are the examples to learn from."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyfast.llm import Completion, Request
from pyfast.systems import load_system
from pyfast.systems.prompts import INSUFFICIENT, unless_known

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from oracle import _LABEL, Oracle, in_words_of, is_set, planned, stands

_PROMPTS = {
    text: prompt.name
    for name in ("n2n", "hseq", "subqrag")
    for prompt in load_system(name).prompts
    for text in (
        prompt.system,
        unless_known(prompt, False).system if INSUFFICIENT in prompt.system else prompt.system,
    )
}
_PLAN = ("hops", "query", "entity_type", "second_query", "third_query", "alternatives")


@dataclass(frozen=True)
class Example:
    """A prompt, and what to reply to it."""

    name: str
    messages: tuple[tuple[str, str], ...]
    reply: str
    empty: bool
    """Whether the reply is that there is nothing to say."""


class Teacher(Oracle):
    """`golds` may bring `plan` (the reply), `found` (what each search finds) and `stated` (what must stand on one
    line, for an answer that may stand there by chance)."""

    context_window = 2048

    def __init__(self, golds: Sequence[dict[str, Any]], facts: Iterable[tuple[str, str, str]] = ()) -> None:
        super().__init__(golds, facts)
        self.examples: list[Example] = []
        self.pairs: dict[str, list[list[str]]] = {}  # of a query: what must stand on one line

    async def complete(self, request: Request) -> Completion:
        system, user = request.messages[0].content, request.messages[-1].content
        name = _PROMPTS[system]
        reply, learned = getattr(self, name)(user), True
        if reply.pop("unsure", False):
            learned = False
        text = json.dumps(reply, ensure_ascii=False)
        if learned and len(request.messages) == 2:
            said = reply.get("answer", reply.get("entity", reply.get("answers", reply)))
            empty = said in ("", INSUFFICIENT, []) or (name == "select" and not reply["args"]["segment_ids"])
            messages = tuple((message.role, message.content) for message in request.messages)
            self.examples.append(Example(name, messages, text, empty))
        return Completion(text, "stop")

    def plan(self, said: str) -> dict[str, Any]:
        gold = self.golds[said.rpartition("\nQuestion: ")[2]]
        if "plan" not in gold:
            reply = super().plan(said)
            return _in_order(reply) if "path" in gold else {**reply, "unsure": True}
        plan = gold["plan"]
        for hop, (template, found) in enumerate(zip(_searches(plan), gold["found"], strict=False)):
            query = template
            for at, earlier in enumerate(gold["found"][:hop], start=1):
                query = query.replace(f"{{entity{at}}}", earlier)
            self.found[query] = found if isinstance(found, list) else [found]
            if not isinstance(found, list) and hop < len(gold.get("stated", ())):
                self.pairs[query] = [gold["stated"][hop]]
        return _in_order(plan)

    def head(self, said: str) -> dict[str, Any]:
        reply = super().head(said)
        lines = _LABEL.split(said.rpartition("\nQuestion: ")[0])[1:]
        holding = [at for at, line in enumerate(lines, start=1) if stands(reply["answer"], line)]
        return {**reply, "supporting": holding[:2]}

    def extract(self, said: str) -> dict[str, Any]:
        evidence, _, query = said.rpartition("answers this? ")
        pairs = self.pairs.get(query)
        if pairs and not _on_a_line(evidence, pairs):
            return {"entity": ""}
        reply = super().extract(said)
        if query in self.found and reply["entity"]:
            known = "; ".join(self._known(evidence, self.found[query]))
            return {"entity": known if len(known) <= 120 else reply["entity"]}
        return reply if query in self.found else {**reply, "unsure": not self.leads}

    def _known(self, evidence: str, names: Iterable[str]) -> list[str]:
        """Those that stand in the evidence, letter by letter where they do."""
        return [name if name in evidence else found for name in names for found in in_words_of(evidence, [name])]

    def _read(self, question: str, evidence: str) -> str:
        gold = self.golds[question]
        if gold["answers"][0].lower() in ("yes", "no"):
            return gold["answers"][0].lower() if _on_a_line(evidence, gold.get("stated", [])) else INSUFFICIENT
        if "stated" in gold and gold.get("world") and not _on_a_line(evidence, gold["stated"][-1:]):
            return INSUFFICIENT
        if is_set(gold):
            return super()._read(question, evidence)
        known = self._known(_LABEL.sub("", evidence), gold["answers"])
        return known[0] if known else INSUFFICIENT

    def sub_questions(self, said: str) -> dict[str, Any]:
        gold = self.golds[said.rpartition("\nQuestion: ")[2]]
        if "simple" not in gold:
            return {"questions": [gold["question"]], "unsure": True}
        for hop, text in enumerate(gold["simple"]):
            filled = _filled(text, gold["found"])
            self.found[filled] = [gold["found"][hop]]
            self.pairs[filled] = gold["stated"][hop : hop + 1]
        return {"questions": list(gold["simple"])}

    def rewrite(self, said: str) -> dict[str, Any]:
        earlier, _, question = said.rpartition("\nQuestion to rewrite: ")
        known = dict(_EARLIER.findall(earlier))
        return {"question": re.sub(r"#(\d)", lambda place: known.get(place[1], place[0]), question)}

    def from_facts(self, said: str) -> dict[str, Any]:
        return self._of_numbered(said, _NUMBER)

    def from_documents(self, said: str) -> dict[str, Any]:
        return self._of_numbered(said, _LABEL)

    def _of_numbered(self, said: str, mark: re.Pattern[str]) -> dict[str, Any]:
        lines, _, question = said.rpartition("\n\nQuestion: ")
        if question not in self.found:
            return {"answers": [], "used": [], "unsure": True}
        (answer,), pair = self.found[question], self.pairs[question]
        holding = [at for at, line in enumerate(mark.split(lines)[1:], start=1) if _on_a_line(line, pair)]
        return {"answers": self._known(lines, [answer])[:1] if holding else [], "used": holding[:1]}

    def extract_triples(self, said: str) -> dict[str, Any]:
        return {"triples": [], "unsure": True}

    def from_memory(self, said: str) -> dict[str, Any]:
        facts, _, question = said.removeprefix("Facts:\n").rpartition("\n\nQuestion: ")
        return {"answer": self._read(question, facts)}

    def guide(self, said: str) -> dict[str, Any]:
        gold = self.golds[said.removeprefix("Question: ")]
        if "plan" not in gold:
            return {**super().guide(said), "unsure": True}
        plan = gold["plan"]
        then = plan["second_query"].replace("{entity1}", "it")
        last = plan["third_query"].replace("{entity2}", "it").replace("{entity1}", "it") or then or plan["query"]
        return {"first_look": plan["query"][:160], "expansion": then[:120], "stop": f"Stop at the {last}"[:120]}

    def _clues(self, gold: dict[str, Any]) -> list[str]:
        found = [name for each in gold.get("found", []) for name in (each if isinstance(each, list) else [each])]
        return found or super()._clues(gold)


_EARLIER = re.compile(r"(?m)^#(\d): .* -> (.*)$")
_NUMBER = re.compile(r"(?m)^\d+\. ")


def _filled(text: str, found: Sequence[str]) -> str:
    return re.sub(r"#(\d)", lambda place: found[int(place[1]) - 1], text)


def _in_order(plan: dict[str, Any]) -> dict[str, Any]:
    """The fields in the order of the schema, which llama.cpp enforces."""
    return {name: plan[name] for name in _PLAN}


def _searches(plan: dict[str, Any]) -> list[str]:
    return [plan["query"], plan["second_query"], plan["third_query"]][: plan["hops"]]


def _on_a_line(evidence: str, pairs: Sequence[Sequence[str]]) -> bool:
    """Whether the names of each pair stand together on a line of the evidence."""
    lines = [line for line in _LABEL.split(evidence) if line.strip()]
    return bool(pairs) and all(any(all(stands(name, line) for name in pair) for line in lines) for pair in pairs)


_OF = {
    "located in the administrative territorial entity": "administrative region of {}",
    "shares border with": "what shares a border with {}", "instance of": "what {} is", "followed by": "what followed {}",
    "follows": "what came before {}", "part of": "what {} is part of", "has part": "parts of {}", "located in or next to body of water": "body of water at {}",
    "educated at": "where {} was educated", "member of sports team": "team of {}", "said to be the same as": "other name of {}",
}  # fmt: skip


def _of(name: str, relation: str) -> str:
    relation = relation.strip()
    return _OF.get(relation, relation + " of {}").format(name)


def with_plan(gold: dict[str, Any]) -> dict[str, Any]:
    """A gold question with the plan that its annotation gives, if it gives one."""
    question = gold["question"]
    if steps := gold.get("decomposition"):
        return gold if len(steps) > 3 else {**gold, **_of_steps(steps)}
    evidences = gold.get("evidences")
    if evidences and all(len(it) == 3 for it in evidences):
        heads = [head.strip() for head, _, _ in evidences]
        kind = gold["type"]
        stated = {"stated": [[tail] for _, _, tail in evidences]}
        if kind == "comparison" and len(evidences) == 2 and all(stands(head, question) for head in heads):
            (a, r, x), (b, s, y) = evidences
            return {
                **gold,
                **stated,
                "plan": {**planned([_of(a, r)], [_of(b, s)]), "entity_type": r[:30]},
                "found": [[x, y]],
            }
        if (
            kind == "bridge_comparison"
            and len(evidences) == 4
            and all(stands(head, question) for head in heads[:2])
        ):
            (a, r, x), (b, s, y) = evidences[:2]
            then = evidences[2][1]
            plan = {**planned([_of(a, r), _of("{entity1}", then)], [_of(b, s)]), "entity_type": r[:30]}
            return {**gold, **stated, "plan": plan, "found": [[x, y], [evidences[2][2], evidences[3][2]]]}
        if kind in ("compositional", "inference") and len(evidences) == 2 and stands(heads[0], question):
            (a, r, x), (_, s, y) = evidences
            plan = {**planned([_of(a, r), _of("{entity1}", s)]), "entity_type": r[:30]}
            return {**gold, "plan": plan, "found": [x, y]}
        return {**gold, **stated}
    if gold.get("type") == "open" or "conv_id" in gold:
        words = re.sub(
            r"(?i)^(who|what|when|where|which|how many|how) (is|was|are|were|does|did|do) (the )?",
            "",
            question.rstrip("?"),
        )
        return {**gold, "plan": {**planned([words]), "entity_type": _type(question)}, "found": []}
    return gold


def _type(question: str) -> str:
    word = question.lower().split()[0]
    kinds = {"who": "person", "when": "date", "where": "place", "how": "number"}
    return kinds.get(word, "name")


def _of_steps(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """MuSiQue's decomposition as a plan: searches in the words of its questions."""
    chain: list[str] = []
    beside: list[str] = []
    found: list[str] = []
    place: dict[str, str] = {}
    kinds = []
    for at, step in enumerate(steps, start=1):
        name, _, relation = step["question"].partition(">>")
        query = _of(name.strip(), relation) if relation else step["question"].strip()
        query = re.sub(r"#(\d)", lambda m: place.get(m[1], m[0]), query)
        if not chain or "{entity" in query:
            chain.append(query)
            found.append(step["answer"])
            place[str(at)] = f"{{entity{len(chain)}}}"
            kinds.append((relation.strip() or _type(query))[:30])
        else:  # it needs nothing found before: beside the first
            beside.append(query)
            found[0] = [*(found[0] if isinstance(found[0], list) else [found[0]]), step["answer"]]  # type: ignore[list-item]
            place[str(at)] = "{entity1}"
    valid = len(chain) == 1 or all("{entity" in query for query in chain[1:])
    if not valid or "#" in "".join(chain) or chain[0].count("{"):
        return {}
    return {"plan": {**planned(chain, beside), "entity_type": kinds[0]}, "found": found}
