"""Published decompositions, followed by a scripted model that rewrites, reads what it is shown, and no more."""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyfast.knowledge import Knowledge
from pyfast.knowledge.rule_based import triples_of_sentence
from pyfast.llm import Completion, Request
from pyfast.systems.subqrag import SYSTEM

WORDS = {
    "directed_by": ("Who directed {}?", "Which movies were directed by {}?"),
    "written_by": ("Who is {} written by?", "Which movies were written by {}?"),
    "starred_actors": ("Who are the starred actors of {}?", "Which movies have the starred actors {}?"),
    "release_year": ("What is the release year of {}?", "Which movies have the release year {}?"),
    "in_language": ("What is {} in language?", "Which movies are in language {}?"),
    "has_genre": ("What genre has {}?", "Which movies has genre {}?"),
    "has_tags": ("What has tags {}?", "Which movies has tags {}?"),
    "has_imdb_rating": ("What has imdb rating {}?", "Which movies has imdb rating {}?"),
    "has_imdb_votes": ("What has imdb votes {}?", "Which movies has imdb votes {}?"),
}
_PASSAGE = re.compile(r"(?m)^\[(\d+)\] (.*)$")
_LINE = re.compile(r"(?m)^(\d+)\. (.*) \| (.*) \| (.*)$")


def ask(relation: str, about: str) -> str:
    """A sub-question; `~` before a relation means that its tail is known."""
    return WORDS[relation.removeprefix("~")][relation.startswith("~")].format(about)


class _Scripted:
    """Answers each prompt of SubQRAG with the method of its name."""

    spec = "scripted"
    context_window = 100_000_000
    slots = 1000
    chains: dict[str, list[str]]

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def fingerprint(self) -> str:
        return self.spec

    async def complete(self, request: Request) -> Completion:
        system, said = request.messages[0].content, request.messages[-1].content
        kind = next(prompt.name for prompt in SYSTEM.prompts if prompt.system == system)
        return Completion(json.dumps(getattr(self, kind)(said)), "stop")

    def sub_questions(self, said: str) -> dict[str, Any]:
        return {"questions": self.chains[said.rpartition("Question: ")[2]]}

    def rewrite(self, said: str) -> dict[str, Any]:
        found = dict(re.findall(r"(?m)^(#\d+): .* -> (.*)$", said))
        question = said.rpartition("Question to rewrite: ")[2]
        return {"question": re.sub(r"#\d+", lambda place: found.get(place[0], place[0]), question)}

    def from_documents(self, said: str) -> dict[str, Any]:
        return {"answers": []}

    def extract_triples(self, said: str) -> dict[str, Any]:
        return {"triples": []}

    def from_memory(self, said: str) -> dict[str, Any]:
        return {"answer": "see the path"}


class FollowsGoldPaths(_Scripted):
    """A scripted model: it knows each question's path; what it answers stands in the facts it is shown."""

    def __init__(self, questions: Sequence[dict[str, Any]]) -> None:
        self.chains = {
            question["question"]: [
                ask(relation, question["topic_entity"] if hop == 0 else f"#{hop}")
                for hop, relation in enumerate(question["path"])
            ]
            for question in questions
        }

    def from_facts(self, said: str) -> dict[str, Any]:
        facts, _, question = said.partition("\n\nQuestion: ")
        answers: list[str] = []
        used = []
        for number, head, relation, tail in _LINE.findall(facts):
            for backward, (known, values) in enumerate([(head, tail), (tail, head)]):
                asked = ("~" if backward else "") + relation.replace(" ", "_")
                if any(question == ask(asked, one) for one in known.split("; ")):
                    answers += values.split("; ")
                    used.append(int(number))
        return {"answers": answers, "used": used}


class FollowsDecompositions(_Scripted):
    """MuSiQue's: it knows each sub-question's answer, and gives it where what it is shown holds it."""

    def __init__(self, questions: Sequence[dict[str, Any]]) -> None:
        self.chains, self.answers = {}, {}
        for question in questions:
            steps = question["decomposition"]
            self.chains[question["question"]] = [step["question"].replace(" >> ", " ") for step in steps]
            for step in steps:
                asked = step["question"].replace(" >> ", " ")
                for number, earlier in enumerate(steps, start=1):
                    asked = asked.replace(f"#{number}", earlier["answer"])
                self.answers[asked] = step["answer"]

    def from_facts(self, said: str) -> dict[str, Any]:
        facts, _, question = said.partition("\n\nQuestion: ")
        answer, words = self.answers.get(question, "").lower(), {w for w in question.lower().split() if len(w) > 3}
        used = []
        for number, *ends in _LINE.findall(facts):
            fact = " ".join(ends).lower()
            if answer and answer in fact and words & {*fact.split()}:
                used.append(int(number))
        return {"answers": [self.answers[question]] if used else [], "used": used}

    def from_documents(self, said: str) -> dict[str, Any]:
        passages, _, question = said.partition("\n\nQuestion: ")
        answer = self.answers.get(question, "")
        told = [int(number) for number, text in _PASSAGE.findall(passages) if answer.lower() in text.lower()]
        return {"answers": [answer], "used": told[:1]} if answer and told else {"answers": [], "used": []}

    def extract_triples(self, said: str) -> dict[str, Any]:
        passages, _, question = said.rpartition("\n\nThe question: ")
        answer = self.answers.get(question, "").lower()
        found: list[tuple[str, str, str]] = []
        for _, passage in _PASSAGE.findall(passages):
            title, _, text = passage.partition(". ")
            found += [triple for line in text.split(". ") for triple in triples_of_sentence(line, title)][:20]
        triples = sorted(found, key=lambda triple: answer not in " ".join(triple).lower())[:30]
        return {"triples": [dict(zip(("head", "relation", "tail"), triple, strict=True)) for triple in triples]}


def closure(store: Knowledge, question: dict[str, Any]) -> set[str]:
    """What a gold path leads to, by following the store's triples one by one."""
    reached = {question["topic_entity"]}
    for relation in question["path"]:
        name = relation.removeprefix("~").replace("_", " ")
        one, other = (store.tail, store.head) if relation.startswith("~") else (store.head, store.tail)
        entities = [i for i, entity in enumerate(store.entities) if entity in reached]
        chosen = np.isin(one, entities) & (store.relation == store.relations.index(name))
        reached = {store.entities[i] for i in other[chosen].tolist()}
    return reached
