# ruff: noqa: E501
"""Make the examples that the embedded model learns from.

    python benchmarks/teach/make.py OUT [--worlds 5] [--seed 0]

The teacher (teacher.py) answers the training questions of the sets under PYFAST_DATA, those of developers whose
blake2b(id) is odd, and questions about invented worlds (worlds.py), through the systems themselves. OUT gets
train.jsonl and held-out.jsonl (invented worlds of other subjects, and developer questions whose digest is even):
a line is {kind, name, messages, reply}. Nothing comes from `examples/` or speaks of what they speak of.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from structure import of_pairs, of_tables, of_texts
from teacher import Example, Teacher, with_plan
from worlds import HELD_OUT, SUBJECTS, world

import pyfast
from pyfast.corpus import read
from pyfast.engine import Question
from pyfast.knowledge import Session, add_extracts, extract_by_rules
from pyfast.retrieval import Index, build_index
from pyfast.systems import load_system

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from runs import answer_all
from word_vectors import WordVectors

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PYFAST_DATA", ROOT.parent / "shared" / "data"))
SETS = ("musique", "2wiki", "hotpotqa", "hybridqa", "nq", "metaqa", "convmix")
PLANNED = ("musique", "2wiki", "metaqa", "nq", "convmix")
WORDS = re.compile(r"\w+")
N = 8
"""Words in a row that no example may share with `examples/`."""
Gold = dict[str, Any]


def odd(question: Gold) -> bool:
    """Whether a question of a development set is for developing; nothing is learned from the others."""
    return bool(blake2b(question["id"].encode()).digest()[-1] % 2)


def grams(text: str, n: int = N) -> set[tuple[str, ...]]:
    words = WORDS.findall(text.lower())
    return {tuple(words[at : at + n]) for at in range(len(words) - n + 1)}


def of_examples() -> tuple[set[tuple[str, ...]], re.Pattern[str]]:
    """What `examples/` say, in runs of words, and a pattern of the names that they are about."""
    runs: set[tuple[str, ...]] = set()
    names: set[str] = set()
    for file in sorted((ROOT / "examples" / "corpus").rglob("*")):
        if file.suffix == ".md":
            runs |= grams(file.read_text("utf-8"))
            names.add(file.read_text("utf-8").splitlines()[0].lstrip("# "))
        elif file.is_file():
            for line in file.read_text("utf-8").splitlines():
                runs |= grams(line)
                names.add(re.split(r"[\t,]", line)[0])
    for line in (ROOT / "examples" / "questions.jsonl").read_text("utf-8").splitlines():
        runs |= grams(json.loads(line)["question"])
    names = {name for name in names if len(name) > 3 and name[:1].isupper()} | {
        "NASA",
        "spacecraft",
        "Mars",
        "orbit",
    }
    return runs, re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)))


def questions(name: str) -> tuple[list[Gold], list[Gold]]:
    """(To learn from, held out) of a set."""
    learn, held = [], []
    for file in ("questions.train.jsonl", "questions.jsonl"):
        path = DATA / name / file
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            gold = json.loads(line)
            is_learned = "train" in file or gold.get("subset") == "train100" or odd(gold)
            (learn if is_learned else held).append(gold)
    runs = set().union(*(grams(gold["question"]) for gold in held))
    asked = {gold["question"].lower() for gold in held}
    learn = [it for it in learn if it["question"].lower() not in asked and not grams(it["question"]) & runs]
    return list({it["question"]: it for it in learn}.values()), list({it["question"]: it for it in held}.values())


def run(
    golds: Sequence[Gold], index: Index, system: str, settings: dict[str, Any], facts: Any = ()
) -> Iterator[Example]:
    """The examples of a run of a system over questions."""
    if not golds:
        return
    teacher = Teacher(golds, facts)
    pyfast.answer(
        [gold["question"] for gold in golds],
        index=index,
        llm=teacher,
        system=system,
        settings=settings,
        concurrency=8,
    )
    yield from teacher.examples


def run_subqrag(golds: Sequence[Gold], index: Index) -> Iterator[Example]:
    """The same of SubQRAG, over the triples that rules read off the documents."""
    teacher = Teacher(golds)
    session = Session(index, add_extracts(index, WordVectors(), extract_by_rules(index)))
    system = load_system("subqrag")
    asked = (Question(str(at), gold["question"]) for at, gold in enumerate(golds))
    records: list[Any] = []
    asyncio.run(answer_all(asked, system.ask(system.configure({}), session), index, teacher, records.append, 8))
    yield from teacher.examples


def settings_of(system: str, rng: random.Random) -> dict[str, Any]:
    """Settings as a small model needs them: few passages."""
    abstain = rng.random() < 0.6
    if system == "rag":
        return {"k": rng.choice((2, 3, 4, 5, 6, 8, 10)), "abstain": abstain}
    if system == "hseq":
        return {"window": rng.choice((6, 8, 12)), "k": rng.choice((1, 2)), "steps": 2, "characters": 160}
    few = {"hop_k": rng.choice((10, 20)), "hop_max": rng.choice((3, 4, 5)), "abstain": abstain}
    few["final_max"] = rng.choice((4, 5, 6, 8))
    return few | {"hop_min": 2, "final_min": 3} if system == "n2n" else few


def parts(golds: Sequence[Gold], count: int) -> Iterator[list[Gold]]:
    for at in range(count):
        yield list(golds[at::count])


def of_world(number: int, subject: Any, seed: int) -> Iterator[tuple[str, Example]]:
    rng = random.Random(f"{seed} {subject.title} {number}")
    corpus, golds = world(subject, rng)
    golds = [{**gold, "id": f"{subject.title}-{number}-{at}", "world": True} for at, gold in enumerate(golds)]
    golds = list({gold["question"]: gold for gold in golds}.values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.jsonl"
        path.write_text("".join(json.dumps(it) + "\n" for it in corpus), "utf-8")
        index = build_index(read([path]), Path(folder) / "index")
        for part in parts(golds, 3):
            for example in run(part, index, "n2n", settings_of("n2n", rng)):
                yield "world", example
            for example in run(part, index, "rag", settings_of("rag", rng)):
                yield "world", example
        for example in run(golds[:12], index, "decompose", settings_of("decompose", rng)):
            yield "world", example
        for example in run(golds[12:22], index, "hseq", settings_of("hseq", rng)):
            yield "world", example
        for example in run_subqrag([gold for gold in golds if "simple" in gold][22:52], index):
            yield "world", example


def of_set(
    name: str, golds: Sequence[Gold], index: Index, facts: Any, rng: random.Random, times: int = 3
) -> Iterator[tuple[str, Example]]:
    golds = [with_plan(gold) for gold in golds]
    for _ in range(times):
        for part in parts(golds, 3):
            for example in run(part, index, "rag", settings_of("rag", rng), facts):
                yield name, example
    planned = [gold for gold in golds if "plan" in gold or "path" in gold]
    if name in ("nq", "convmix"):
        planned = planned[::3]
    if name in PLANNED:
        for part in parts(planned, 3):
            for system in ("n2n", "decompose"):
                for example in run(part, index, system, settings_of(system, rng), facts):
                    yield name, example
    for example in run(golds[:40], index, "hseq", settings_of("hseq", rng), facts):
        yield name, example


def beside(
    name: str, golds: Sequence[Gold], documents: dict[str, Gold]
) -> Iterator[tuple[list[Gold], list[Gold]]]:
    """Ten questions at a time, with the documents of their own setting: there a search finds what answers them."""
    own = [gold for gold in golds if gold.get("context") or gold.get("table_id")]
    for part in parts(own, len(own) // 10):
        ids = {it for gold in part for it in (*gold.get("context", ()), *gold["supporting"])}
        ids |= {gold["table_id"] for gold in part if "table_id" in gold}
        yield part, [documents[it] for it in sorted(ids) if it in documents]


def structured(name: str, held: Sequence[Gold], documents: dict[str, Gold], rng: random.Random) -> list[Gold]:
    """Questions read off documents by rule; off none that a held-out question rests on."""
    taken = {
        it
        for gold in held
        for it in (*gold.get("supporting", ()), *gold.get("supporting_any", ()), gold.get("table_id"))
    }
    free = [it for key, it in documents.items() if key not in taken]
    if name in ("2wiki", "hotpotqa", "musique"):
        texts = [it for it in free if it["kind"] == "text"]
        golds = [*of_texts(texts, rng, 500), *of_pairs(texts, rng, 400 if name == "2wiki" else 120)]
        golds = list({gold["question"]: gold for gold in golds}.values())
    elif name in ("hybridqa", "convmix"):
        golds = list(of_tables([it for it in free if it["kind"] == "table"], rng, 2))
        golds = rng.sample(golds, min(len(golds), 500))
    else:
        golds = []
    return [{**gold, "id": f"{name}-rule-{at}", "world": True} for at, gold in enumerate(golds)]


def on(
    documents: Sequence[Gold], name: str, golds: Sequence[Gold], systems: Sequence[str], rng: random.Random
) -> Iterator[tuple[str, Example]]:
    """The examples of questions over a small index of these documents."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.jsonl"
        path.write_text("".join(json.dumps(it) + "\n" for it in documents), "utf-8")
        index = build_index(read([path]), Path(folder) / "index")
        for system in systems:
            some = golds if system in ("rag", "hseq") else [gold for gold in golds if "plan" in gold]
            for example in run(some, index, system, settings_of(system, rng)):
                yield name, example


def facts_of(path: Path) -> list[tuple[str, str, str]]:
    found = []
    for line in path.read_text("utf-8").splitlines():
        document = json.loads(line)
        if document["kind"] == "kg":
            found += [tuple(it) for it in document["triples"]]
    return found


def chosen(examples: Iterable[tuple[str, Example]], rng: random.Random) -> list[dict[str, Any]]:
    """Each once; few with nothing to say, and a share of each prompt."""
    runs, names = of_examples()

    @cache  # A passage stands in many prompts.
    def shared(line: str) -> bool:
        return not grams(line).isdisjoint(runs)

    groups: dict[tuple[str, str, bool], dict[str, dict[str, Any]]] = defaultdict(dict)
    dropped: Counter[str] = Counter()
    for kind, example in examples:
        texts = [text for _, text in example.messages]
        if names.search(texts[-1].rpartition("\n")[2] + " " + example.reply):
            dropped["names"] += 1
        elif any(map(shared, (*texts[-1].splitlines(), example.reply))):
            dropped["runs"] += 1
        else:
            row = {"kind": kind, "name": example.name, "messages": texts, "reply": example.reply}
            groups[kind, example.name, example.empty][json.dumps(texts)] = row
    print("dropped", dict(dropped))
    result: list[dict[str, Any]] = []
    for (kind, name, empty), rows in sorted(groups.items()):
        full = len(groups.get((kind, name, False), ()))
        most = int(full * EMPTY.get(name, 0.08)) if empty else SHARE.get((kind, name), len(rows))
        some = rng.sample(sorted(rows), min(len(rows), most))
        result += [rows[it] for it in some]
        print(f"{kind:14} {name:8} {'empty' if empty else 'full':6} {len(some):6} of {len(rows)}")
    rng.shuffle(result)
    return result


EMPTY = {"answer": 0.05, "extract": 0.04, "head": 0.06, "select": 0.05, "from_facts": 0.25, "from_documents": 0.15}
# Of plans with one search fewer than there could be, or a small model plans one search for all questions.
SHARE: dict[tuple[str, str], int] = {
    ("convmix rule", "plan"): 80, ("hotpotqa rule", "plan"): 160, ("hybridqa rule", "plan"): 150, ("musique rule", "plan"): 80,
    ("world", "plan"): 6500, ("world", "guide"): 150, ("world", "select"): 250, ("world", "head"): 300, ("world", "sub_questions"): 500, ("world", "rewrite"): 500, ("world", "from_facts"): 900, ("world", "from_memory"): 500, ("metaqa", "answer"): 300,
    ("metaqa", "plan"): 80, ("metaqa", "extract"): 80, ("nq", "plan"): 60, ("convmix", "plan"): 60, ("metaqa", "select"): 40,
}  # fmt: skip


def kept(out: Path, name: str, seed: int) -> Path:
    """Make a part and write it to a file, unless it is there: what was made is not lost."""
    path = out / f"part-{name}-{seed}.jsonl"
    if not path.exists():
        lines = [
            json.dumps([later, kind, asdict(example)])
            for later, rows in enumerate(part_of(name, seed))
            for kind, example in rows
        ]
        aside = path.with_suffix(".part")
        aside.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        aside.rename(path)
    return path


def part_of(name: str, seed: int) -> tuple[list[tuple[str, Example]], list[tuple[str, Example]]]:
    """(To learn from, held out) of the worlds of one number, or of a set."""
    if name.isdigit():
        of = {
            later: [
                it
                for subject in SUBJECTS
                if (subject.title in HELD_OUT) is later
                for it in of_world(int(name), subject, seed)
            ]
            for later in ((False, True) if name == "0" else (False,))
        }
        return of[False], of.get(True, [])
    rng = random.Random(f"{seed} {name}")
    train, later = questions(name)
    facts = facts_of(DATA / name / "corpus.jsonl") if name == "metaqa" else ()
    documents = {it["id"]: it for it in map(json.loads, (DATA / name / "corpus.jsonl").open(encoding="utf-8"))}
    learned: list[tuple[str, Example]] = []
    held: list[tuple[str, Example]] = []
    with tempfile.TemporaryDirectory() as folder:
        index = build_index(read([DATA / name / "corpus.jsonl"]), Path(folder) / "index")
        learned.extend(of_set(name, train, index, facts, rng, 1 if name in ("metaqa", "convmix") else 2))
        for part, some in beside(name, train, documents):
            learned.extend(on(some, name, [with_plan(gold) for gold in part], ("rag", "rag", "rag", "n2n"), rng))
        ruled = structured(name, later, documents, rng)
        for part in parts(ruled, len(ruled) // 110 + 1):
            for system in ("n2n", "rag"):
                learned.extend((f"{name} rule", it) for it in run(part, index, system, settings_of(system, rng)))
        held.extend((name, it) for it in run(later[:100], index, "rag", {"k": 5}, facts))
    print(name, len(train), len(later), len(ruled), len(learned), flush=True)
    return learned, held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--worlds", type=int, default=5, help="Of each subject.")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names = [*filter(None, options.sets.split(",")), *map(str, range(options.worlds))]
    with ProcessPoolExecutor(options.processes) as pool:
        made = list(pool.map(kept, [options.out] * len(names), names, [options.seed] * len(names)))
    rows = [json.loads(line) for path in made for line in path.open(encoding="utf-8")]
    for place, name in enumerate(("train", "held-out")):
        picked = chosen(
            ((kind, Example(**it)) for later, kind, it in rows if later == place), random.Random(options.seed)
        )
        with (options.out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in picked)
        print(name, len(picked))


if __name__ == "__main__":
    main()
