"""ToT, RAT, RATT and CoA over knowledge units, beside loops written from their papers: the same calls with the
same texts, the same evidence, the same answer. What the LLM says depends on what it gets, so the order is free."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest
from loops import WORDS
from scripted import Scripted, run

from pyfast.knowledge import Session
from pyfast.llm import Request
from pyfast.systems.mtqa.knowledge_units import Keywords, KnowledgeUnit, knowledge_units

QUESTION = "Who discovered the moon that Huygens landed on?"
Said = dict[str, Any]


def number(user: str, seed: int) -> int:
    return int.from_bytes(blake2b(f"{user} {seed}".encode(), digest_size=3).digest())


def said(kind: str, user: str, seed: int) -> Said:
    """The reply to a prompt."""
    drawn = number(user, seed)
    paragraphs = [f"{kind[0]}{drawn}.{at}" for at in range(1 + drawn % 3)]
    return {
        "keywords": {"detailed": [WORDS[drawn % len(WORDS)]], "general": ["discoverer"]},
        "summary": {"paragraphs": paragraphs, "answer": f"Answer {drawn}"},
        "summary_alone": {"paragraphs": paragraphs, "answer": f"Answer {drawn}"},
        "vote": {"best": 1 + drawn % 5},
        "value": {"value": ("sure", "likely", "impossible")[drawn % 3]},
        "notes": {"notes": f"Notes {drawn}"},
        "conclude": {"answer": f"Answer {drawn}"},
    }.get(kind, {"paragraphs": paragraphs})


class Papers:
    """What a loop asks the LLM and the knowledge graph."""

    def __init__(self, known: Session) -> None:
        self.known = known
        self.calls: list[tuple[str, str, int]] = []
        self.read: list[KnowledgeUnit] = []

    def ask(self, kind: str, user: str, seed: int = 0) -> Said:
        self.calls.append((kind, user, seed))
        return said(kind, user, seed)

    def search(self, *thoughts: str) -> list[KnowledgeUnit]:
        lines = "".join(f"\n{line}" for line in thoughts)
        reply = self.ask("keywords", QUESTION + (f"\nThoughts so far:{lines}" if lines else ""))
        keywords = Keywords(tuple(reply["detailed"]), tuple(reply["general"]))
        (units,) = knowledge_units([keywords], self.known, 3, 3, 10)
        self.read += units
        return list(units)

    def told(self, units: list[KnowledgeUnit]) -> str:
        lines = [
            f"[{at}] {self.known.index.text(unit.passage)}"
            + "".join(sorted(f"\n- {' | '.join(t)}" for t in unit.triples))
            for at, unit in enumerate(units, 1)
        ]
        return "\n".join(lines) or "(nothing was found)"

    def think(self, before: list[str], seed: int, units: list[KnowledgeUnit] | None = None) -> list[str]:
        user = f"Write a line of thought.\nQuestion: {QUESTION}\n{headed('Draft', before)}"
        if units is None:
            return self.ask("thought_alone", user, seed)["paragraphs"]
        return self.ask("thought", f"Knowledge:\n{self.told(units)}\n\n{user}", seed)["paragraphs"]

    def correct(self, earlier: list[str], thought: list[str], query: list[str]) -> list[str]:
        known = self.told(self.search(*query))
        user = f"Question: {QUESTION}\n{headed('Earlier thoughts', earlier)}\nThought:\n" + "\n".join(thought)
        return self.ask("correct", f"Knowledge:\n{known}\n\n{user}")["paragraphs"]

    def conclude(self, notes: list[str]) -> str:
        return self.ask("conclude", "Notes:\n" + "\n".join(notes) + f"\n\nQuestion: {QUESTION}")["answer"]


def headed(name: str, lines: list[str]) -> str:
    return "\n".join(["", f"{name}:", *lines, ""]) if lines else ""


def same(
    known: Session, system: str, loop: Callable[[Papers], str | None], in_order: bool, **settings: str
) -> Any:
    """The record of a system, whose calls, evidence and answer are those of the loop."""
    papers = Papers(known)
    answer = loop(papers)

    def reply(kind: str) -> Callable[[Request], Said]:
        def of(request: Request) -> Said:
            user = request.messages[-1].content
            return said(kind, user.split("\n\nQuestion: ")[1] if kind == "keywords" else user, request.seed)

        return of

    kinds = ("keywords", "thought", "thought_alone", "correct", "summary", "summary_alone", "vote", "value")
    llm = Scripted(**{kind: reply(kind) for kind in (*kinds, "notes", "conclude")})
    (record,) = run(known.index, llm, [QUESTION], system, session=known, **settings)
    asked = []
    for kind, request in llm.calls:
        user = request.messages[-1].content
        asked.append((kind, user.split("\n\nQuestion: ")[1] if kind == "keywords" else user, request.seed))
    assert asked == papers.calls if in_order else sorted(asked) == sorted(papers.calls)
    index = known.index
    ids = {f"{index.corpus.ids[index.passages[unit.passage]]:016x}" for unit in papers.read}
    assert {piece["segment"] for piece in record.evidence} == ids and len(record.evidence) == len(ids)
    assert (record.state, record.answer) == ("answered", answer)
    return record


def rat(papers: Papers, causal: bool, query: str) -> list[str]:
    """Thoughts; then for each: a query of it and of the corrected thoughts, and the correction."""
    draft = papers.think([], 0)
    done: list[str] = []
    for thought in [[one] for one in draft] if causal else [draft]:
        done += papers.correct(list(done), thought, [*done, *thought] if query == "thoughts" else [])
    return done


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("query", ["thoughts", "question"])
def test_rat_is_the_loop_of_its_paper(known: Session, causal: bool, query: str) -> None:
    given = {"causal": "on" if causal else "off", "query": query}
    same(known, "rat", lambda papers: papers.conclude(rat(papers, causal, query)), True, **given)
    record = same(
        known, "rat", lambda papers: "\n\n".join(rat(papers, causal, query)), True, long_answer="on", **given
    )
    assert len(record.trace["columns"]) == (1 + len(record.trace["columns"][0]["thoughts"][0]) if causal else 2)


def test_rat_without_retrieval_is_a_chain_of_thought(known: Session) -> None:
    same(known, "rat", lambda papers: papers.conclude(papers.think([], 0)), True, retrieval="off")


def ratt(papers: Papers, nodes: int, layers: int, retrieval: bool, by_paragraph: bool) -> tuple[list[str], str]:
    """In each layer: m thoughts, m corrections with m searches, and one call that joins them."""
    root, answer = list[str](), ""
    for layer in range(layers):
        corrected = []
        for node in range(nodes):
            thought = papers.think(root, layer * nodes + node)
            done: list[str] = [] if retrieval else thought
            for part in ([[one] for one in thought] if by_paragraph else [thought]) if retrieval else []:
                done = done + papers.correct(done, part, [*done, *part])
            corrected.append(f"({node + 1})\n" + "\n".join(done))
        lines = "\nLines of thought:\n" + "\n".join(corrected)
        reply = papers.ask(
            "summary_alone", f"Write the summary.\nQuestion: {QUESTION}\n{headed('Draft', root)}{lines}"
        )
        root, answer = reply["paragraphs"], reply["answer"]
    return root, answer


@pytest.mark.parametrize(("nodes", "layers"), [(1, 1), (3, 4), (2, 3)])
@pytest.mark.parametrize("correction", ["node", "paragraph", None])
def test_ratt_is_the_tree_of_its_paper(known: Session, nodes: int, layers: int, correction: str | None) -> None:
    tree = (nodes, layers, correction is not None, correction == "paragraph")
    given = {"nodes": str(nodes), "layers": str(layers)}
    given |= {"correction": correction} if correction else {"retrieval": "off"}
    same(known, "ratt", lambda papers: ratt(papers, *tree)[1], False, **given)
    same(known, "ratt", lambda papers: "\n\n".join(ratt(papers, *tree)[0]), False, long_answer="on", **given)
    papers = Papers(known)
    ratt(papers, *tree)
    kinds = [kind for kind, *_ in papers.calls]
    if (
        correction == "node"
    ):  # MTQA's equation 12: n(2m + 1) calls and mn searches, each of which has one for keywords
        assert len(kinds) - kinds.count("keywords") == layers * (2 * nodes + 1)
        assert kinds.count("keywords") == nodes * layers


def tot(papers: Papers, depth: int, k: int, b: int, votes: int, how: str, retrieval: bool) -> list[str]:
    """Breadth-first search: k thoughts of each kept state, their votes or values, the b best."""
    units = papers.search() if retrieval else None
    states: list[list[str]] = [[]]
    for layer in range(depth):
        parents = [state for state in states for _ in range(k)]
        new = [[*state, *papers.think(state, layer * b * k + at, units)] for at, state in enumerate(parents)]
        worth = [0.0] * len(new)
        for seed in range(votes):
            if how == "vote":
                shown = "\n\n".join(f"({at})\n" + "\n".join(state) for at, state in enumerate(new, 1))
                best = papers.ask("vote", f"Question: {QUESTION}\n\nLines of thought:\n{shown}", seed)["best"]
                if best <= len(new):
                    worth[best - 1] += 1
            else:
                for at, state in enumerate(new):
                    user = f"Question: {QUESTION}\n\nLine of thought:\n" + "\n".join(state)
                    value = papers.ask("value", user, seed)["value"]
                    worth[at] += {"sure": 20, "likely": 1, "impossible": 0.001}[value]
        states = [new[at] for at in sorted(range(len(new)), key=lambda at: (-worth[at], at))[:b]]
    return states[0]


@pytest.mark.parametrize(("depth", "k", "b", "votes"), [(2, 5, 1, 5), (3, 2, 3, 2), (1, 1, 1, 1)])
@pytest.mark.parametrize("how", ["vote", "value"])
@pytest.mark.parametrize("retrieval", [True, False])
def test_tot_is_the_search_of_its_paper(
    known: Session, depth: int, k: int, b: int, votes: int, how: str, retrieval: bool
) -> None:
    tree = (depth, k, b, votes, how, retrieval)
    given = {"depth": str(depth), "candidates": str(k), "breadth": str(b), "evaluations": str(votes)}
    given |= {"evaluation": how, "retrieval": "on" if retrieval else "off"}
    same(known, "tot", lambda papers: papers.conclude(tot(papers, *tree)), False, **given)
    same(known, "tot", lambda papers: "\n\n".join(tot(papers, *tree)), False, long_answer="on", **given)


def coa(papers: Papers, part: int, backward: bool, manager: bool) -> str:
    """Each agent reads a part and the notes before it; the manager, or the last agent, answers."""
    units = papers.search()
    units = units[::-1] if backward else units
    parts = [units[at : at + part] for at in range(0, len(units), part)]
    notes = ""
    for own in parts if manager else parts[:-1]:
        before = headed("Notes of the reader before you", [notes] if notes else [])
        notes = papers.ask("notes", f"Knowledge:\n{papers.told(own)}\n\nQuestion: {QUESTION}\n{before}")["notes"]
    if manager:
        return papers.conclude([notes])
    draft = headed("Draft", [notes] if notes else [])
    user = f"Knowledge:\n{papers.told(parts[-1])}\n\nWrite the summary.\nQuestion: {QUESTION}\n{draft}"
    return papers.ask("summary", f"{user}\nLines of thought:\n")["answer"]


@pytest.mark.parametrize("part", [1, 2, 4, 50])
@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("manager", [True, False])
def test_coa_is_the_chain_of_its_paper(known: Session, part: int, order: str, manager: bool) -> None:
    given = {"part": str(part), "order": order, "manager": "on" if manager else "off"}
    same(known, "coa", lambda papers: coa(papers, part, order == "backward", manager), True, **given)
