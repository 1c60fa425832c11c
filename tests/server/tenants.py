"""Documents of three tenants in one index. Each document has a word that no other document has."""

import json
from pathlib import Path

from knowing import know

from pyfast.corpus import KnowledgeGraph, Table, TextDocument, Triple
from pyfast.corpus.documents import Document, Outline
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, build_index

TENANTS = ("a", "b", "c")
WORDS = {
    f"{tenant}/{kind}": f"Xen{tenant}{kind}ius" for tenant in TENANTS for kind in ("text", "old", "moons", "facts")
}
"""The word of each document, by the document's uri"""
YEARS = {uri: 1900 + number for number, uri in enumerate(WORDS) if uri.endswith(("/text", "/old"))}
"""Only texts have metadata"""


def documents() -> list[Document]:
    made: list[Document] = []
    for uri, word in WORDS.items():
        if uri.endswith("/moons"):
            rows = (("Titan", word), ("Rhea", word))
            made.append(Table(uri, f"Moons {word}", "Known", ("moon", "discoverer"), rows))
        elif uri.endswith("/facts"):
            triples = (Triple("Titan", "was discovered by", word), Triple(word, "was born in", "Rome"))
            made.append(KnowledgeGraph(uri, f"Facts {word}", triples))
        else:
            text = f"Titan was discovered by {word}. {word} was born in Rome."
            about = json.dumps({"year": YEARS[uri]})
            made.append(TextDocument(uri, f"Titan {word}", text, outline=Outline(about=about)))
    return made


def tenants(folder: Path) -> Index:
    """The index, with its knowledge graph."""
    index = build_index(documents(), folder)
    know(index)
    return Index(folder)


def outside(text: str, allowed: set[str]) -> list[str]:
    """The documents that a text shows, but not among the allowed ones."""
    return [uri for uri, word in WORDS.items() if uri not in allowed and (word in text or f'"{uri}"' in text)]


class Listening(Instant):
    """Keeps the prompts that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []

    async def complete(self, request: Request) -> Completion:
        self.prompts += [message.content for message in request.messages]
        return await super().complete(request)
