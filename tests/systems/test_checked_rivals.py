"""Search-in-the-Chain, SlimPLM and Rowen beside loops written from their papers: the same calls with the same
texts, and the same answers. What an LLM says depends on what it is asked."""

import asyncio
import random
import string
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest
from loops import QUESTIONS, WORDS
from runs import answer_all
from scripted import KINDS, Scripted, run

from pyfast.engine import Question, Record
from pyfast.errors import InputError
from pyfast.retrieval import Index, fuse
from pyfast.systems import load_system
from pyfast.systems.prompts import INSUFFICIENT

Say = Callable[[str, str], dict[str, Any]]
"""The reply to a kind of prompt and its text"""


def drawn(*of: object) -> random.Random:
    return random.Random(blake2b(repr(of).encode()).hexdigest())


def words(*of: object) -> str:
    draw = drawn(*of)
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))


class Paper:
    """An LLM that replies by what it is asked, and a corpus."""

    def __init__(self, index: Index, say: Say) -> None:
        self.index, self.say, self.calls = index, say, list[tuple[str, str]]()

    def ask(self, kind: str, user: str) -> dict[str, Any]:
        self.calls.append((kind, user))
        return self.say(kind, user)

    def find(self, queries: list[str], k: int) -> str:
        (pool,) = fuse([self.index.search(queries, k)], k)
        lines = [self.index.text(int(passage)) for passage in pool.passages]
        return "\n".join(f"[{at}] {line}" for at, line in enumerate(lines, 1))


def asked(
    index: Index, say: Callable[[str, str], dict[str, Any]], question: str, system: str, **given: Any
) -> Any:
    kinds = {prompt.name for prompt in load_system(system).prompts}
    replies = {kind: (lambda request, kind=kind: say(kind, request.messages[-1].content)) for kind in kinds}
    llm = Scripted(**replies)
    (record,) = run(index, llm, [question], system, **given)
    return record, [(kind, request.messages[-1].content) for kind, request in llm.calls]


def plain(text: str) -> str:
    kept = "".join(one for one in text.lower() if one not in string.punctuation)
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))


# Search-in-the-Chain


def of_chain(kind: str, user: str) -> dict[str, Any]:
    draw = drawn(kind, user)
    if kind == "chain":
        links = [
            {"query": words(user, at % 3), "known": words(user, at, "known") if draw.random() < 0.6 else ""}
            for at in range(draw.randint(0, 4))
        ]
        return {"chain": links, "answer": draw.choice(["", "Titan", "Titan", INSUFFICIENT])}
    if kind == "check":
        known = draw.choice([words(user), "Titan", "", "not mentioned"])
        return {"answer": known, "sure": draw.random() < 0.7}
    return {"answer": f"from notes {draw.randint(1, 9)}"}


def chain(paper: Paper, question: str, search: str, rounds: int, k: int) -> str | None:
    asked_before, settled = set[str](), dict[str, str]()

    def notes() -> str:
        return "\n".join(f"Looked up: {query} {known or 'not found'}" for query, known in settled.items())

    example = USER["chain"].rpartition("Question: ")[0]
    for _ in range(rounds if search != "off" else 1):
        said = paper.ask("chain", f"{example}Question: {question}\n{notes()}")
        is_wrong = False
        for link in said["chain"]:
            query, known = link["query"], link["known"]
            if query in asked_before:
                continue
            asked_before.add(query)
            settled[query] = known
            if search == "off" or (search == "verify" and not known) or (search == "complete" and known):
                continue
            found = paper.ask("check", f"Passages:\n{paper.find([query], k)}\n\nQuery: {query}")
            answer = "" if found["answer"] == "not mentioned" else found["answer"]
            if not known or (found["sure"] and plain(answer) not in plain(known)):
                settled[query], is_wrong = answer, True
                break
        if not is_wrong and said["answer"]:
            return None if said["answer"] == INSUFFICIENT else said["answer"]
        if not is_wrong:
            break
    return str(paper.ask("conclude", f"Notes:\n{notes()}\n\nQuestion: {question}")["answer"])


USER = {prompt.name: prompt.user for prompt in load_system("searchain").prompts}


@pytest.mark.parametrize("search", ["on", "verify", "complete", "off"])
@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("number", range(12))
def test_searchain_is_the_method_of_its_paper(small: Index, search: str, rounds: int, number: int) -> None:
    question = f"{QUESTIONS[number % 3]} ({number})"
    given = {} if search == "off" else {"rounds": str(rounds), "k": "2"}
    record, calls = asked(small, of_chain, question, "searchain", search=search, **given)
    paper = Paper(small, of_chain)
    assert record.answer == chain(paper, question, search, rounds, 2)
    assert calls == paper.calls
    assert len(record.trace["steps"]) == [kind for kind, _ in calls].count("check")
    assert len(record.trace["chains"]) == [kind for kind, _ in calls].count("chain")


def test_searchain_corrects_and_completes(small: Index) -> None:
    def say(kind: str, user: str) -> dict[str, Any]:
        if kind == "check":
            return {"answer": "Titan" if "landed" in user.rpartition("Query:")[2] else "Huygens", "sure": True}
        if "Looked up: Which moon? Rhea" in user:
            raise AssertionError("a wrong answer stays")
        links = [("Which moon has Huygens landed on?", "Rhea"), ("Who discovered Titan?", "")]
        known = user.rpartition("Question: ")[2].count("Looked up: ")
        answer = "Christiaan Huygens" if known == 2 else ""
        return {"chain": [{"query": q, "known": a} for q, a in links[known:]], "answer": answer}

    record, calls = asked(small, say, QUESTIONS[0], "searchain")
    assert [kind for kind, _ in calls] == ["chain", "check", "chain", "check", "chain"]
    assert (
        "Looked up: Which moon has Huygens landed on? Titan\nLooked up: Who discovered Titan? Huygens"
        in calls[-1][1]
    )
    assert record.answer == "Christiaan Huygens" and record.evidence


def test_searchain_without_a_usable_check_keeps_what_is_known(small: Index) -> None:
    links = [{"query": "Which moon?", "known": "Titan"}]
    for known, kinds in (("Titan", ["chain", "check"]), ("", ["chain", "check", "chain"])):
        links[0]["known"] = known
        llm = Scripted(chain={"chain": links, "answer": "Huygens"}, check="?")
        (record,) = run(small, llm, [QUESTIONS[0]], "searchain")
        assert record.answer == "Huygens" and llm.kinds == kinds


# SlimPLM


def of_slim(kind: str, user: str) -> dict[str, Any]:
    draw = drawn(kind, user)
    if kind == "heuristic":
        return {"answer": f"It may be {words(user)}."}
    if kind == "necessity":
        return {"known": draw.random() < 0.4}
    if kind == "queries":
        claims = [{"claim": f"{words(user, at)} is so.", "query": words(user, at, "query")} for at in range(3)]
        queries = [words(user, "own", at) for at in range(draw.randint(0, 2))]
        return {"queries": queries, "claims": claims[: draw.randint(0, 3)]}
    return {"answer": f"{kind} {draw.randint(1, 9)}"}


def slim(paper: Paper, question: str, retrieve: str, query: str, claims: bool, k: int) -> str:
    judged, small_says = "Question: {}\nAnswer of the small model: {}", ""
    if retrieve == "judged" or query == "rewritten":
        small_says = paper.ask("heuristic", f"Question: {question}")["answer"]
    if retrieve == "judged" and paper.ask("necessity", judged.format(question, small_says))["known"]:
        return str(paper.ask("direct", f"Question: {question}")["answer"])
    queries = [question]
    if query == "rewritten":
        said = paper.ask("queries", judged.format(question, small_says))
        of_claims = said["claims"]
        if claims:
            of_claims = [
                one
                for one in of_claims
                if not paper.ask("necessity", judged.format(one["query"], one["claim"]))["known"]
            ]
        queries = list(dict.fromkeys([*said["queries"], *(one["query"] for one in of_claims)])) or [question]
    most = "Use at most 300 characters for the answer."
    context = paper.find(queries, k)
    return str(paper.ask("answer", f"{most}\n\nEvidence:\n{context}\n\nQuestion: {question}")["answer"])


@pytest.mark.parametrize("retrieve", ["judged", "always"])
@pytest.mark.parametrize(("query", "claims"), [("rewritten", True), ("rewritten", False), ("question", True)])
@pytest.mark.parametrize("number", range(10))
def test_slimplm_is_the_method_of_its_paper(
    small: Index, retrieve: str, query: str, claims: bool, number: int
) -> None:
    question = f"{QUESTIONS[number % 3]} ({number})"
    given = {"claim_filter": "off"} if not claims else {}
    record, calls = asked(small, of_slim, question, "slimplm", retrieve=retrieve, query=query, k="4", **given)
    paper = Paper(small, of_slim)
    assert record.answer == slim(paper, question, retrieve, query, claims, 4) and calls == paper.calls
    assert ("steps" in record.trace) == any(kind == "answer" for kind, _ in calls) == bool(record.evidence)


def test_slimplm_falls_back_to_a_search_for_the_question(small: Index) -> None:
    llm = Scripted(heuristic={"answer": "?"}, necessity="?", queries="?", answer={"answer": "Huygens"})
    (record,) = run(small, llm, [QUESTIONS[0]], "slimplm")
    assert record.answer == "Huygens" and record.trace["steps"][0]["query"] == QUESTIONS[0]
    assert record.trace["known"] is False and llm.kinds == ["heuristic", "necessity", "queries", "answer"]


def test_a_small_model_has_the_roles_of_its_prompts(small: Index) -> None:
    """Only the answer is the larger model's; in rowen, the second model's wordings are of the role `draft`."""
    little = Scripted(heuristic={"answer": "?"}, necessity={"known": False}, queries={"queries": [], "claims": []})
    large = Scripted(answer={"answer": "Huygens"})
    system, records = load_system("slimplm"), list[Record]()
    models = {"draft": little, "judge": little, "plan": little, "default": large}
    ask = system.ask(system.configure({}))
    asyncio.run(answer_all(iter([Question("a", QUESTIONS[0])]), ask, small, models, records.append, 1))
    assert little.kinds == ["heuristic", "necessity", "queries"] and large.kinds == ["answer"]
    assert [prompt.role for prompt in load_system("rowen").prompts if prompt.name == "other_says"] == ["draft"]


# Rowen


def of_rowen(kind: str, user: str) -> dict[str, Any]:
    draw = drawn(kind, user)
    if kind == "cot":
        return {"reasoning": f"Because of {words(user)}.", "answer": "Titan"}
    if kind == "wordings":
        texts = [words(user, at) for at in range(draw.randint(0, 4))]
        return {"wordings": [{"question": f"{text}?", "translation": f"{text} in Chinese?"} for text in texts]}
    if kind in ("say", "other_says"):
        return {"answer": draw.choice(["", words(user), words(user)])}
    if kind == "agreement":
        return {"agree": draw.random() < 0.6}
    if kind == "search":
        return {"queries": [words(user, at) for at in range(draw.randint(0, 3))]}
    return {"answer": f"{kind} {draw.randint(1, 9)}"}


def rowen(paper: Paper, question: str, of: str, most: int, threshold: float, k: int) -> str:
    first = paper.ask("cot", f"Think step by step.\nQuestion: {question}")
    language = "none: translation is empty" if of == "models" else "Chinese"
    told = f"Number of wordings: {most}\nOther language: {language}\nQuestion: {question}"
    shares: dict[str, list[bool]] = {"languages": [], "models": []}
    say = KINDS[load_system("rowen").prompts[2].system]  # One prompt for both models.
    for wording in paper.ask("wordings", told)["wordings"][:most]:
        one, other = wording["question"], wording["translation"]
        answers = {"first": paper.ask(say, f"Question: {one}")["answer"]}
        for kind, text in (("languages", other), ("models", one)):
            if of in (kind, "both"):
                answers[kind] = paper.ask(say, f"Question: {text}")["answer"]
        for kind, text in (("languages", other), ("models", one)):
            if of in (kind, "both"):
                pair = f"First question: {one}\nFirst answer: {answers['first']}\n\n"
                pair += f"Second question: {text}\nSecond answer: {answers[kind]}"
                both = answers["first"] and answers[kind]
                shares[kind].append(bool(both) and paper.ask("agreement", pair)["agree"])
    means = {kind: sum(each) / len(each) if each else 0.0 for kind, each in shares.items()}
    score = means["languages"] + 0.25 * means["models"] if of == "both" else means[of]
    if score >= threshold:
        return str(first["answer"])
    beside = f"Question: {question}\nReasoning: {first['reasoning']}\nAnswer"
    queries = list(dict.fromkeys(paper.ask("search", f"{beside}: {first['answer']}")["queries"])) or [question]
    repair = f"Evidence:\n{paper.find(queries, k)}\n\n{beside} so far: {first['answer']}"
    return str(paper.ask("repair", repair)["answer"])


@pytest.mark.parametrize("of", ["languages", "models", "both"])
@pytest.mark.parametrize("threshold", [0.3, 0.6])
@pytest.mark.parametrize("number", range(10))
def test_rowen_is_the_method_of_its_paper(small: Index, of: str, threshold: float, number: int) -> None:
    question = f"{QUESTIONS[number % 3]} ({number})"
    given = {"consistency": of, "threshold": str(threshold), "wordings": "3", "k": "3"}
    record, calls = asked(small, of_rowen, question, "rowen", **given)
    paper = Paper(small, of_rowen)
    assert record.answer == rowen(paper, question, of, 3, threshold, 3)
    assert sorted(calls) == sorted(paper.calls)
    assert ("steps" in record.trace) == (record.answer != "Titan") == bool(record.evidence)


def test_rowen_searches_where_nothing_can_be_compared(small: Index) -> None:
    cot, repaired = {"reasoning": "So.", "answer": "Rhea"}, {"answer": "Titan"}
    wordings = {"wordings": [{"question": "Which moon?", "translation": "Welcher Mond?"}]}
    for replies in (
        {"wordings": "?"},
        {"wordings": wordings, "say": "?", "other_says": "?"},
        {"wordings": wordings, "say": {"answer": "Rhea"}, "other_says": {"answer": "Rhea"}, "agreement": "?"},
    ):
        llm = Scripted(cot=cot, search="?", repair=repaired, **replies)
        (record,) = run(small, llm, [QUESTIONS[0]], "rowen")
        assert record.answer == "Titan" and record.trace["consistency"] == 0
        assert record.trace["steps"][0]["query"] == QUESTIONS[0]


def test_settings_without_effect_are_refused() -> None:
    for system, given in (
        ("rowen", {"consistency": "models", "language": "German"}),
        ("rowen", {"model_weight": "1"}),
        ("slimplm", {"query": "question", "claim_filter": "off"}),
        ("searchain", {"search": "off", "rounds": "2"}),
    ):
        with pytest.raises(InputError, match="has no effect"):
            load_system(system).configure(given)
