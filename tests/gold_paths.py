"""MetaQA's gold paths as a language model would follow them: it decomposes, rewrites, reads facts, and no more."""

import json
import re
from collections.abc import Sequence
from typing import Any

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
_LINE = re.compile(r"(?m)^(\d+)\. (.*) \| (.*) \| (.*)$")


def ask(relation: str, about: str) -> str:
    """A sub-question; `~` before a relation means that its tail is known."""
    return WORDS[relation.removeprefix("~")][relation.startswith("~")].format(about)


class FollowsGoldPaths:
    """A scripted model. What it knows of a question is its path; what it answers stands in the facts it is shown.

    It goes back to nothing that it came from, as the data set's own answers do not.
    """

    spec = "gold paths"
    context_window = 100_000_000
    slots = 1000

    def __init__(self, questions: Sequence[dict[str, Any]]) -> None:
        self.chains = {
            question["question"]: [
                ask(relation, question["topic_entity"] if hop == 0 else f"#{hop}")
                for hop, relation in enumerate(question["path"])
            ]
            for question in questions
        }

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def fingerprint(self) -> str:
        return self.spec

    async def complete(self, request: Request) -> Completion:
        system, said = request.messages[0].content, request.messages[-1].content
        kind = next(prompt.name for prompt in SYSTEM.prompts if prompt.system == system)
        reply = getattr(self, kind)(said)
        return Completion(json.dumps(reply), "stop")

    def sub_questions(self, said: str) -> dict[str, Any]:
        return {"questions": self.chains[said.rpartition("Question: ")[2]]}

    def rewrite(self, said: str) -> dict[str, Any]:
        found = dict(re.findall(r"(?m)^(#\d+): .* -> (.*)$", said))
        question = said.rpartition("stand on its own: ")[2]
        return {"question": re.sub(r"#\d+", lambda place: found[place[0]], question)}

    def from_facts(self, said: str) -> dict[str, Any]:
        facts, _, question = said.partition("\n\nQuestion: ")
        answers: list[str] = []
        used = []
        for number, head, relation, tail in _LINE.findall(facts):
            for backward, (known, values) in enumerate([(head, tail), (tail, head)]):
                if question == ask(("~" if backward else "") + relation.replace(" ", "_"), known):
                    answers += values.split("; ")
                    used.append(int(number))
        return {"answers": answers, "used": used}

    def from_documents(self, said: str) -> dict[str, Any]:
        return {"answers": []}

    def read_triples(self, said: str) -> dict[str, Any]:
        return {"triples": []}

    def from_memory(self, said: str) -> dict[str, Any]:
        return {"answer": "see the path"}
