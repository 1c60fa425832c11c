"""The words of headings reach the search and the LLM: a passage's line begins with the headings above it."""

import random
from pathlib import Path

import docx
import pptx
import pytest
from fpdf import FPDF

import pyfast
from pyfast.corpus import Heading, Level, Outline, Table, TextDocument, decode, encode, read
from pyfast.knowledge.extraction import split_into_chunks
from pyfast.retrieval import Index, narrate

MANUAL = """\
# Service manual

## Warranty period

It is 24 months.

## Delivery period

It is 14 days.

## Recall of 2019
"""


def markdown(path: Path) -> None:
    path.write_text(MANUAL, encoding="utf-8")


def html(path: Path) -> None:
    path.write_text(
        "<html><head><title>Service manual</title></head><body><h1>Service "
        "manual</h1><h2>Warranty "
        "period</h2><p>It is 24 months.</p><h2>Delivery period</h2><p>It is 14 days.</p>"
        "<h2>Recall of 2019</h2></body></html>",
        encoding="utf-8",
    )


def word(path: Path) -> None:
    made = docx.Document()
    made.add_heading("Service manual", 1)
    for name, text in [("Warranty period", "It is 24 months."), ("Delivery period", "It is 14 days.")]:
        made.add_heading(name, 2)
        made.add_paragraph(text)
    made.add_heading("Recall of 2019", 2)
    made.save(str(path))


def slides(path: Path) -> None:
    made = pptx.Presentation()
    for name, text in [("Warranty period", "It is 24 months."), ("Delivery period", "It is 14 days.")]:
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = name
        slide.placeholders[1].text = text
    made.slides.add_slide(made.slide_layouts[5]).shapes.title.text = "Recall of 2019"
    made.save(str(path))


def pdf(path: Path) -> None:
    made = FPDF()
    made.set_font("helvetica", size=12)
    for name, text in [
        ("Warranty period", "It is 24 months."),
        ("Delivery period", "It is 14 days."),
        ("Recall of 2019", ""),
    ]:
        made.add_page()
        made.start_section(name)
        made.multi_cell(0, text=name, new_x="LMARGIN", new_y="NEXT")
        made.multi_cell(0, text=text, new_x="LMARGIN", new_y="NEXT")
    made.output(str(path))


@pytest.mark.parametrize(
    ("name", "write"),
    [("m.md", markdown), ("m.html", html), ("m.docx", word), ("m.pptx", slides), ("m.pdf", pdf)],
)
def test_headings_are_found_and_shown(tmp_path: Path, name: str, write: object) -> None:
    write(tmp_path / name)  # type: ignore[operator]
    index = pyfast.build_index(tmp_path / name, tmp_path / "IDX")
    asked = ["How long is the warranty period?", "delivery period", "Was there a recall?"]
    for pool, right in zip(index.search(asked, 1), ["24 months", "14 days", "Recall of 2019"], strict=True):
        assert right in index.text(int(pool.passages[0])), asked
    (text,) = narrate(index, index.search(["warranty period"], 1), 400)
    assert "Warranty period. It is 24 months." in text
    cited = index.corpus.segment(int(index.passages[index.search(["warranty"], 1)[0].passages[0]]))
    assert cited["snippet"] == "It is 24 months."


def lines(document: TextDocument, level: Level = Level.PARAGRAPH) -> list[str]:
    corpus = encode([document])
    return [corpus.render(i) for i in range(len(corpus)) if corpus.level[i] == level]


def test_a_line_has_the_path_of_its_headings() -> None:
    text = "Before.\n\n# Moons\n\n## Of Saturn\n\nTitan is one. Rhea too.\n\nMore\n====\n\nEnd.\n"
    document = TextDocument("m", "Moons", text, markdown=True)
    assert lines(document) == [
        "Moons. Before.",
        "Moons > Of Saturn. Titan is one. Rhea too.",
        "Moons > More. End.",
    ]
    assert lines(document, Level.SENTENCE)[2] == "Moons > Of Saturn. Rhea too."
    linear = encode([document])
    sentences = [linear.linearise(i) for i in range(len(linear)) if linear.level[i] == Level.SENTENCE]
    assert sentences[1] == "Moons > Of Saturn, Titan is one."


def test_a_text_without_headings_keeps_its_line() -> None:
    assert lines(TextDocument("a", "Titan", "It is a moon.\n\nTitan is large.")) == [
        "Titan. It is a moon.",
        "Titan is large.",
    ]
    assert lines(TextDocument("a", "", "```\n# no heading\n```", markdown=True)) == ["``` # no heading ```"]


def test_an_empty_section_is_a_passage_and_its_parents_are_none() -> None:
    text = "# A\n\n## B\n\n### C\n\n## D\n\nText.\n\n# E"
    assert lines(TextDocument("m", "T", text, markdown=True)) == ["T > A > B > C", "T > A > D. Text.", "T > E"]


def test_a_table_fills_its_section(tmp_path: Path) -> None:
    (tmp_path / "m.md").write_text("# Moons\n\n| moon | year |\n|---|---|\n| Titan | 1655 |\n", encoding="utf-8")
    index = pyfast.build_index(tmp_path / "m.md", tmp_path / "IDX")
    assert [index.text(i) for i in range(len(index.passages))] == ["Moons | moon: Titan | year: 1655"]


def test_long_paths_are_cut_in_the_middle_and_nothing_is_lost() -> None:
    headings = tuple(Heading(10 * k, 10 * k + 9, k + 1, f"{k} " + "x" * 198) for k in range(6))
    document = TextDocument("a", "T", "y" * 80, outline=Outline(headings=headings))
    *others, last = lines(document)
    assert last.startswith("T > ") and "5 x" in last and "0 x" not in last and len(last) < 620
    assert [sum(f"{k} x" in line for line in [*others, last]) > 0 for k in range(6)] == [True] * 6


def test_a_long_heading_is_a_passage_with_all_its_words() -> None:
    long = " ".join(f"word{k}" for k in range(1000))
    document = TextDocument("m", "T", f"# Part\n\n{long}\n---\n\nEnd.\n", markdown=True)
    first, second, last = lines(document)
    assert first.startswith("T > Part. word0 word1 ") and second.endswith(" word999")
    assert last.startswith("T > Part > word0 ") and last.endswith("…. End.") and len(last) < 300


def test_no_word_of_a_heading_is_lost(tmp_path: Path) -> None:
    chance = random.Random(0)
    for number in range(80):
        words, parts = [], []
        for place in range(chance.randrange(1, 9)):
            word = f"h{place}" + "x" * chance.choice([0, 0, 0, 150, 600])
            words.append(word)
            parts.append("#" * chance.randrange(1, 7) + f" {word}")
            parts += chance.choice([[], [], ["Text."], ["| a | b |\n|---|---|\n| c | d |"]])
        before = chance.choice([[], ["---\ntags: x\n---"], ["Before."]])
        (tmp_path / f"{number:03}.md").write_text("\n\n".join([*before, *parts]) + "\n", encoding="utf-8")
        for also in [[], [tmp_path / f"{number - 1:03}.md"]] if number else [[]]:
            corpus = encode(read([*also, tmp_path / f"{number:03}.md"]))
            uris = [
                i for i in corpus.passages().tolist() if corpus.uri(corpus.source[i]).startswith(f"{number:03}")
            ]
            shown = set(" ".join(map(corpus.render, uris)).replace(".", " ").split())
            assert shown.issuperset(words), (set(words) - shown, parts)
            again = encode(decode(corpus))
            assert [again.render(i) for i in again.passages()] == [corpus.render(i) for i in corpus.passages()]


def test_stars_of_emphasis_are_not_in_the_line() -> None:
    text = "The **warranty period** is *very* long, ***really***. **A *b* c.** (**d**)\n\n"
    kept = (
        "2 * 3 * 4, 2*3*4, f(**kwargs, *args), *.txt or *.md, SELECT *, a.* FROM t, 5* and 6*, __init__, a**b**c"
    )
    corpus = encode([TextDocument("m", "", text + kept, markdown=True), TextDocument("t", "", text)])
    marked, same, plain = (corpus.render(i) for i in corpus.passages().tolist())
    assert marked == "The warranty period is very long, really. A b c. (d)"
    assert same == kept and plain == text.strip()
    assert corpus.segment(int(corpus.passages()[0]))["snippet"] == text.strip()


def test_entities_are_characters_except_in_code() -> None:
    text = "Caf&eacute; in M&#252;nster: R&amp;D, AT&T; x &lt; **y**. \\&amp; and `&amp;`\n\n```\n&lt;b&gt;\n```\n"
    corpus = encode([TextDocument("m", "", text, markdown=True), TextDocument("t", "", "R&amp;D")])
    assert [corpus.render(i) for i in corpus.passages().tolist()] == [
        "Café in Münster: R&D, AT&T; x < y. \\&amp; and `&amp;`",
        "``` &lt;b&gt; ```",
        "R&amp;D",
    ]


CODE = """# Notes

```python
x = {**a, **b}  # ``` is no end
print("**one**")

print("**two**. Three is on the **same** line.")  <!-- shown -->
```
Now **bold**.

- Item:

  ~~~~
  "**four**"
  ~~~

  "**five**"
  ~~~~

> ```
> "**six**"
> ```

It is **bold**, ``x **y** z`` and `f("*a*")`. **Call `g("**b**")` now**, *once*. A lone ` and **bold**.

\\`**bold**\\`

Not closed:

```

"**seven**"
"""


def test_stars_of_products_stay_in_the_cells_of_markdown(tmp_path: Path) -> None:
    cells = ("2*3*4", "2**10 and 2**8", "kg*m, N*m", "`a*b*c` **12** *so*")
    (tmp_path / "a.md").write_text(f"| {' | '.join('abcd')} |\n|{'---|' * 4}\n| {' | '.join(cells)} |\n")
    (table,) = (one for one in read([tmp_path / "a.md"]) if isinstance(one, Table))
    assert list(table.rows) == [(*cells[:3], "a*b*c 12 so")]


def test_stars_in_code_stay() -> None:
    corpus = encode([TextDocument("m", "Notes", CODE, markdown=True)])
    assert [corpus.render(i).removeprefix("Notes. ") for i in corpus.passages().tolist()] == [
        '```python x = {**a, **b}  # ``` is no end print("**one**")',
        'print("**two**. Three is on the **same** line.")  <!-- shown --> ``` Now bold.',
        "- Item:",
        '~~~~ "**four**" ~~~',
        '"**five**" ~~~~',
        '> ``` > "**six**" > ```',
        'It is bold, ``x **y** z`` and `f("*a*")`. Call `g("**b**")` now, once. A lone ` and bold.',
        "\\`bold\\`",
        "Not closed:",
        "```",
        '"**seven**"',
    ]
    second = int(corpus.passages()[1])
    sentences = range(second + 1, int(corpus.subtree_end[second]))
    assert len(sentences) == 2 and "is on the **same** line" in corpus.render(sentences[1])
    assert "is on the **same** line" in corpus.linearise(sentences[1])


@pytest.mark.parametrize("text", ["```\n" * 50_000, "> " * 100_000, "~~~ *a*\n\n" * 5000, "`" * 99_999 + " *a*"])
def test_much_code_takes_no_long_time(text: str) -> None:
    corpus = encode([TextDocument("m", "", text + "\n\n*end*", markdown=True)])
    assert all(map(corpus.render, corpus.passages().tolist()))


def test_bookmarks_that_no_line_says_are_in_the_text(tmp_path: Path) -> None:
    made = FPDF()
    made.set_font("helvetica", size=12)
    made.add_page()
    made.start_section("Warranty of pumps")
    made.start_section("Return of lamps")
    made.multi_cell(0, text="The return of lamps takes 14 days.")
    made.add_page()
    made.start_section("Delivery")
    made.multi_cell(0, text="2.1  DELIVERY", new_x="LMARGIN", new_y="NEXT")
    made.multi_cell(0, text="It is free.")
    made.output(str(tmp_path / "m.pdf"))
    corpus = encode(read([tmp_path / "m.pdf"]))
    assert [corpus.render(i) for i in corpus.passages().tolist()] == [
        "m > Warranty of pumps",
        "m > Return of lamps. The return of lamps takes 14 days.",
        "m > 2.1 DELIVERY. It is free.",
    ]


def test_changed_headings_are_found_after_an_update_and_a_merge(tmp_path: Path) -> None:
    folder, at = tmp_path / "d", tmp_path / "IDX"
    folder.mkdir()
    markdown(folder / "m.md")
    pyfast.build_index(folder, at)
    (folder / "m.md").write_text(MANUAL.replace("Warranty", "Guarantee"), encoding="utf-8")
    assert pyfast.update_documents(at, folder).replaced == 1
    pyfast.compact_index(at)
    fresh = pyfast.build_index(folder, tmp_path / "fresh")
    merged = Index(at)
    assert [merged.text(i) for i in range(len(merged.passages))] == [
        fresh.text(i) for i in range(len(fresh.passages))
    ]
    assert merged.search(["guarantee"], 5)[0].passages.size == 1
    assert merged.search(["warranty"], 5)[0].passages.size == 0


def test_every_chunk_of_a_section_says_its_headings(tmp_path: Path) -> None:
    text = "## Warranty\n\n" + "A sentence that is long enough, and is one of many.\n\n" * 40 + "## Recall\n"
    index = pyfast.build_index([TextDocument("m", "Manual", text, markdown=True)], tmp_path / "IDX")
    chunks = [chunk.text for chunk in split_into_chunks(index, 200)]
    assert len(chunks) > 2 and chunks[-1].endswith("\n\nManual > Recall")
    assert all(chunk.startswith("Manual\n\nManual > Warranty\nA sentence") for chunk in chunks)
