"""Settings are read by name, and refused, in one line that tells what there is, where they make no sense."""

import pytest

from pyfast.errors import InputError
from pyfast.systems import NAMES, load_system

BAD = [
    ("n2n", "frob", "1", "n2n has no setting 'frob'; it has: decompose, graph, rank"),
    ("n2n", "", "1", "no setting ''"),
    ("rag", "alpha", "1", "it has: k"),
    ("direct", "k", "1", "it has none"),
    ("n2n", "graph", "perhaps", "graph"),
    ("n2n", "graph", "", "graph"),
    ("n2n", "alpha", "1.01", "alpha"),
    ("n2n", "alpha", "-0.01", "alpha"),
    ("n2n", "alpha", "nan", "alpha"),
    ("n2n", "alpha", "0,5", "alpha"),
    ("n2n", "beta", "inf", "beta"),
    ("n2n", "beta", "nan", "beta"),
    ("n2n", "rank", "page_rank", "rank"),
    ("n2n", "hop_k", "0", "hop_k"),
    ("n2n", "hop_k", "2.5", "hop_k"),
    ("n2n", "hop_most", "many", "hop_most"),
    ("n2n", "expand", "far", "expand"),
    ("rag", "k", "-1", "k"),
    ("n2n", "centrality", "closeness", "centrality"),
    ("decompose", "graph", "on", "graph"),  # that would be n2n
    ("hseq", "iterator", "best", "iterator"),
    ("hseq", "guidance", "on", "guidance"),
    ("hseq", "window", "0", "window"),
    ("hseq", "k", "17", "k is at most window"),
    ("hseq", "least_steps", "5", "least_steps is at most steps"),
    ("hseq", "order", "paragraph,page", "order"),
    ("hseq", "order", "paragraph,paragraph", "order"),
    ("hseq", "threshold", "0.5", "threshold wants iterator=lexical"),
    ("hseq", "prior", "-1", "prior"),
    ("mtqa", "rows", "0", "rows"),
    ("mtqa", "weights", "diagonal", "there are: uniform, gaussian, const-C, vert-S, hor-S, vert&hor-S"),
    ("mtqa", "weights", "const-1.5", "there are"),
    ("mtqa", "weights", "[[0.1, 0.2]]", "expected a list of 2 lists of 4 numbers from 0 to 1"),
    ("mtqa", "weights", "[[0,0,0,0],[0,0,0,2]]", "expected a list of 2 lists"),
    ("mtqa", "weights", "[[0,0,0,0],[0,0,0,true]]", "expected a list of 2 lists"),
    ("mtqa", "weights", "[[0,0", "expected a list of 2 lists"),
]


@pytest.mark.parametrize(("system", "name", "value", "told"), BAD)
def test_bad_settings_are_refused(system: str, name: str, value: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        load_system(system).configure(
            {name: value} | ({"rank": "graph_rank"} if name in ("alpha", "centrality") else {})
        )
    assert told in str(error.value) and "\n" not in str(error.value)


def test_what_would_change_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"^n2n: alpha wants rank=graph_rank$"):
        load_system("n2n").configure({"alpha": "0.5"})
    with pytest.raises(InputError, match=r"^n2n: expand wants rank=bridge_rank$"):
        load_system("n2n").configure({"rank": "graph_rank", "expand": "on"})


@pytest.mark.parametrize("iterator", ["lexical", "off"])
def test_without_an_llm_that_picks_there_is_nothing_to_guide(iterator: str) -> None:
    with pytest.raises(InputError, match=r"^hseq: guidance wants iterator=llm$"):
        load_system("hseq").configure({"iterator": iterator, "guidance": "head"})
    assert load_system("hseq").configure({"iterator": iterator}).model_dump()["guidance"] == "off"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"source_text": "off", "triples": "off"}, "give retrieval=off"),
        ({"retrieval": "off", "triples": "off"}, "want retrieval=on"),
        ({"communication": "off", "weights": "const-0.5"}, "weights wants communication=on"),
    ],
    ids=str,
)
def test_ablations_of_mtqa_that_contradict_each_other(settings: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=f"^mtqa: .*{told}$"):
        load_system("mtqa").configure(settings)


def test_the_papers_rank_goes_without_expansion() -> None:
    paper = load_system("n2n").configure({"rank": "graph_rank"}).model_dump()
    assert not paper["expand"] and load_system("n2n").configure({}).model_dump()["expand"]


GOOD = [("n2n", {"graph": "off", "decompose": "0"}), ("decompose", {"hop_k": "7"})]
GOOD += [("n2n", {"rank": "graph_rank", "alpha": "1"}), ("n2n", {"rank": "graph_rank", "expand": "off"})]
GOOD += [("n2n", {"rank": "bridge_rank", "beta": "0"}), ("rag", {"k": "1"}), ("cot", {})]
GOOD += [("hseq", {"order": " table_row,Paragraph "}), ("hseq", {"iterator": "lexical", "threshold": "0.5"})]
GOOD += [("hseq", {"guidance": "off"}), ("hseq", {"iterator": "off", "window": "200"})]
GOOD += [("mtqa", {"weights": "[[0, 0.5, 1, 1]]", "rows": "2"}), ("mtqa", {"weights": "[]", "rows": "1"})]
GOOD += [
    ("n2n", {"rank": "graph_rank", "centrality": name})
    for name in ("degree", "pagerank", "betweenness", "eigenvector")
]


@pytest.mark.parametrize(("system", "settings"), GOOD)
def test_good_settings_are_taken(system: str, settings: dict[str, str]) -> None:
    assert load_system(system).configure(settings)


def test_unknown_systems_are_told_the_known() -> None:
    with pytest.raises(InputError, match=r"unknown system '\.\./n2n'; there are: n2n, "):
        load_system("../n2n")
    assert [load_system(name).name for name in NAMES] == list(NAMES)
