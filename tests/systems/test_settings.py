"""Settings are read by name, and refused, in one line that tells what there is, where they make no sense."""

from typing import Any

import pytest

from pyfast.corpus import Level
from pyfast.errors import InputError
from pyfast.systems import describe_settings, load_system, names

BAD = [
    (
        "n2n",
        "frob",
        "1",
        "n2n has no setting 'frob'; its settings are: abstain, effort, evidence_share, decompose, gra",
    ),
    ("n2n", "", "1", "no setting ''"),
    ("n2n", "alhpa", "1", "n2n has no setting 'alhpa'; did you mean alpha?; its settings are: "),
    ("rag", "alpha", "1", "its settings are: abstain, long_answer, effort, evidence_share, k"),
    ("direct", "k", "1", "its settings are: abstain, long_answer"),
    ("cot", "examples", "9", "examples"),
    ("self_consistency", "samples", "0", "samples"),
    ("react", "instructions", "Search.", "instructions has no effect with format=json"),
    ("n2n", "graph", "perhaps", "graph"),
    ("n2n", "graph", "", "graph"),
    ("n2n", "alpha", "1.01", "alpha"),
    ("n2n", "alpha", "-0.01", "alpha"),
    ("n2n", "alpha", "nan", "alpha"),
    ("n2n", "alpha", "0,5", "alpha"),
    ("n2n", "beta", "inf", "beta"),
    ("n2n", "beta", "nan", "beta"),
    ("n2n", "ranking", "page_rank", "ranking"),
    ("n2n", "hop_k", "0", "hop_k"),
    ("n2n", "hop_k", "2.5", "hop_k"),
    ("n2n", "hop_max", "many", "hop_max"),
    ("n2n", "expand", "far", "expand"),
    ("rag", "k", "-1", "k"),
    ("n2n", "centrality", "closeness", "centrality"),
    ("decompose", "graph", "on", "graph"),  # that would be n2n
    ("hseq", "iterator", "best", "iterator"),
    ("hseq", "guidance", "on", "guidance"),
    ("hseq", "window", "0", "window"),
    ("hseq", "k", "17", "k must not be greater than window"),
    ("hseq", "min_steps", "5", "min_steps must not be greater than steps"),
    ("hseq", "order", "paragraph,page", "order"),
    ("hseq", "order", "paragraph,paragraph", "order"),
    ("hseq", "threshold", "0.5", "threshold has no effect with iterator=llm"),
    ("hseq", "prior", "-1", "prior"),
    ("mtqa", "rows", "0", "rows"),
    ("mtqa", "weights", "diagonal", "known: uniform, gaussian, const-C, vert-S, hor-S, vert&hor-S"),
    ("mtqa", "weights", "const-1.5", "known: "),
    ("mtqa", "weights", "[[0.1, 0.2]]", "expected a list of 2 lists of 4 numbers from 0 to 1"),
    ("mtqa", "weights", "[[0,0,0,0],[0,0,0,2]]", "expected a list of 2 lists"),
    ("mtqa", "weights", "[[0,0,0,0],[0,0,0,true]]", "expected a list of 2 lists"),
    ("mtqa", "weights", "[[0,0", "expected a list of 2 lists"),
]


@pytest.mark.parametrize(("system", "name", "value", "told"), BAD)
def test_bad_settings_are_refused(system: str, name: str, value: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        load_system(system).configure(
            {name: value} | ({"ranking": "graph_rank"} if name in ("alpha", "centrality") else {})
        )
    assert told in str(error.value) and "\n" not in str(error.value)


def test_what_would_change_nothing_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"^n2n: alpha has no effect with ranking=bridge_rank: leave it out, or use ranking=graph_rank$",
    ):
        load_system("n2n").configure({"alpha": "0.5"})
    with pytest.raises(InputError, match=r"^n2n: expand has no effect with ranking=graph_rank: leave"):
        load_system("n2n").configure({"ranking": "graph_rank", "expand": "on"})


@pytest.mark.parametrize(
    "name", ["graph", "ranking", "expand", "alpha", "centrality", "beta", "hop_min", "final_min"]
)
def test_a_setting_that_can_have_no_effect_is_no_setting(name: str) -> None:
    """`decompose` has no graphs, so it has none of the settings for graphs."""
    of_n2n, decompose = ({it.name: it for it in describe_settings(of)} for of in ("n2n", "decompose"))
    assert name in of_n2n and name not in decompose and "hop_max" in decompose
    given = {name: of_n2n[name].default if name != "graph" else "off"}
    told = rf"^decompose has no setting '{name}'(; did you mean \w+\?)?; its settings are: {', '.join(decompose)}$"
    with pytest.raises(InputError, match=told):
        load_system("decompose").configure(given)


@pytest.mark.parametrize("iterator", ["lexical", "off"])
def test_without_an_llm_that_picks_there_is_nothing_to_guide(iterator: str) -> None:
    with pytest.raises(
        InputError,
        match=rf"^hseq: guidance has no effect with iterator={iterator}: leave it out, or use iterator=",
    ):
        load_system("hseq").configure({"iterator": iterator, "guidance": "head"})
    assert load_system("hseq").configure({"iterator": iterator}).model_dump()["guidance"] == "off"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"source_text": "off", "triples": "off"}, "use retrieval=off instead"),
        ({"retrieval": "off", "triples": "off"}, "leave it out, or use retrieval=on"),
        (
            {"communication": "off", "weights": "const-0.5"},
            "weights has no effect with communication=off: leave it out, or use communication=on",
        ),
    ],
    ids=str,
)
def test_ablations_of_mtqa_that_contradict_each_other(settings: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=f"^mtqa: .*{told}$"):
        load_system("mtqa").configure(settings)


def test_the_papers_rank_goes_without_expansion() -> None:
    paper = load_system("n2n").configure({"ranking": "graph_rank"}).model_dump()
    assert not paper["expand"] and load_system("n2n").configure({}).model_dump()["expand"]


GOOD = [("n2n", {"graph": "off", "decompose": "0"}), ("decompose", {"hop_k": "7"})]
GOOD += [("n2n", {"ranking": "graph_rank", "alpha": "1"}), ("n2n", {"expand": "off"})]
GOOD += [("n2n", {"ranking": "bridge_rank", "beta": "0"}), ("rag", {"k": "1"}), ("cot", {})]
GOOD += [("hseq", {"order": " table_row,Paragraph "}), ("hseq", {"iterator": "lexical", "threshold": "0.5"})]
GOOD += [("hseq", {"guidance": "off"}), ("hseq", {"iterator": "off", "window": "200"})]
GOOD += [("mtqa", {"weights": "[[0, 0.5, 1, 1]]", "rows": "2"}), ("mtqa", {"rows": "1"})]
GOOD += [
    ("n2n", {"ranking": "graph_rank", "centrality": name})
    for name in ("degree", "pagerank", "betweenness", "eigenvector")
]


@pytest.mark.parametrize(("system", "settings"), GOOD)
def test_good_settings_are_taken(system: str, settings: dict[str, str]) -> None:
    assert load_system(system).configure(settings)


def test_unknown_systems_are_told_the_known() -> None:
    with pytest.raises(InputError, match=r"unknown system '\.\./n2n'; known: .*\bn2n, "):
        load_system("../n2n")
    assert [load_system(name).name for name in names()] == names()


VALUES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("rag", {"k": 5}, {"k": "5"}),
    ("rag", {"k": 5.0}, {"k": "5"}),
    ("n2n", {"graph": False, "decompose": True}, {"graph": "off", "decompose": "on"}),
    ("n2n", {"ranking": "graph_rank", "alpha": 1}, {"ranking": "graph_rank", "alpha": "1"}),
    ("hseq", {"order": ["table_row", "paragraph"]}, {"order": "table_row,paragraph"}),
    ("hseq", {"order": (Level.TABLE_ROW, Level.PARAGRAPH)}, {"order": "table_row,paragraph"}),
    ("mtqa", {"weights": [[0, 0.5, 1, 1]], "rows": 2}, {"weights": "[[0,0.5,1,1]]", "rows": "2"}),
    ("subqrag", {"shared_updates": True}, {"shared_updates": "on"}),
]


@pytest.mark.parametrize(("system", "values", "texts"), VALUES, ids=str)
def test_values_are_taken_as_python_has_them(system: str, values: dict[str, Any], texts: dict[str, str]) -> None:
    chosen = load_system(system)
    settings = chosen.configure(values)
    assert settings == chosen.configure(texts)
    assert settings.model_dump(mode="json") == chosen.configure(texts).model_dump(mode="json")  # of run.toml
    assert chosen.configure(settings.model_dump(include=set(values))) == settings


@pytest.mark.parametrize(
    ("system", "name", "value"),
    [
        ("rag", "k", True),
        ("rag", "k", 2.5),
        ("rag", "k", None),
        ("rag", "k", [5]),
        ("rag", "k", 0),
        ("n2n", "graph", 2),
        ("n2n", "graph", None),
        ("n2n", "beta", True),
        ("n2n", "beta", float("nan")),
        ("n2n", "ranking", 1),
        ("hseq", "order", []),
        ("hseq", "order", ["page"]),
        ("hseq", "order", 7),
        ("mtqa", "weights", [[1]]),
        ("mtqa", "weights", 0.5),
    ],
)
def test_values_that_do_not_fit_are_refused(system: str, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{system}: .*") as error:
        load_system(system).configure({name: value})
    assert name in str(error.value) and "\n" not in str(error.value)
