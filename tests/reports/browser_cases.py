"""What a reader does with a report, in a real browser: nothing on the console, no request that leaves here."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe
from hostile_server import hostile
from oracle import Oracle
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from test_show import UNSURE
from tiny import tiny_model

import pyfast
from pyfast.corpus import TextDocument, read
from pyfast.retrieval import Index, build_index

CHROMIUM = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
SCREENSHOTS = os.environ.get("PYFAST_SCREENSHOTS")
EVIL = (
    "Titan <script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> [moon](javascript:hacked=1)"
    " <a href='javascript:window.hacked=1'>Saturn</a> \u202egnorw\u202c \u0007 </script>"
    " http://evil.example/moon.png"
)
PLANS = {
    "ex-12": [("On which moon did the probe Huygens land", "Titan"), ("#1 discovered in the year", "1655")],
    "ex-14": [
        ("Who proposed the Pale Blue Dot picture", "Carl Sagan"),
        ("Organisation co-founded by #1", "Planetary Society"),
    ],
    "ex-15": [("The rover in Ares Vallis", "Sojourner"), ("#1 was named after", "Sojourner Truth")],
}
BIG = 10_000


class Reader(Oracle):
    """The oracle as an LLM whose tokens count."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Any) -> Any:
        done = await super().complete(request)
        size = sum(len(message.content) for message in request.messages) // 4
        return type(done)(done.text, done.finish_reason, size, size // 3, len(done.text) // 4)


@pytest.fixture(scope="module")
def place(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions, runs of two systems and their report; some questions and documents are hostile."""
    folder = tmp_path_factory.mktemp("place")
    lines = [json.loads(line) for line in (examples / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        plan = PLANS.get(line["id"], ())
        line["decomposition"] = [{"question": asked, "answer": answer} for asked, answer in plan]
    lines.append({"id": "evil<b>/../&", "question": EVIL, "answers": ["x"], "type": EVIL, "supporting": [EVIL]})
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    documents = [*read([examples / "corpus"]), TextDocument(EVIL, EVIL, EVIL)]
    index = build_index(documents, folder / "index")
    pyfast.answer(questions, index=index, llm=Reader(lines), system="n2n", run=folder / "n2n")
    pyfast.answer(questions, index=index, llm="instant", system="rag", run=folder / "rag")
    pyfast.report([folder / "n2n", folder / "rag"], folder / "report", questions)
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a plain web server with this folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    with served(place / "report") as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        yield made
        made.close()


Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens pages. At the end: no message on the console, no error, no request to another machine."""
    said: list[str] = []
    contexts = []

    def watch(route: Route) -> None:
        url = urlsplit(route.request.url)
        if url.scheme in ("data", "blob", "file") or url.hostname == "127.0.0.1":
            route.continue_()
        else:
            said.append(f"request to {route.request.url}")
            route.abort()

    def opens(address: str, width: int = 1280, dark: bool = False) -> Page:
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.route("**/*", watch)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
        page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
        page.goto(address)
        return page

    yield opens
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.hacked") is None
        context.close()
    assert said == []


def keep(page: Page, name: str) -> None:
    """A screenshot for the docs, if they are being made."""
    if SCREENSHOTS:
        before = page.viewport_size
        assert before is not None
        page.set_viewport_size({"width": 760, "height": 800})  # narrow: its letters can be read on a phone
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")
        page.set_viewport_size(before)


def open_all(page: Page) -> None:
    """Everything that can be opened; of the documents, which are many and alike, two."""
    page.evaluate("""for (const one of document.querySelectorAll("details:not(.part)")) one.open = true;
        for (const one of [...document.querySelectorAll("details.part")].slice(0, 2)) one.open = true;""")


def draw_graphs(page: Page) -> None:
    """Every graph in view, and drawn."""
    for graph in page.locator(".graph").all():
        graph.scroll_into_view_if_needed()
        expect(graph).to_have_attribute("data-drawn", "yes", timeout=15_000)


def test_from_the_first_screen_to_a_graph(opened: Open, address: str) -> None:
    page = opened(address)
    expect(page.locator("h1")).to_have_text("2 runs")
    expect(page.locator(".chart svg").first).to_be_visible()
    keep(page, "report-overview")
    page.get_by_role("link", name="Questions", exact=True).click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(26)
    page.get_by_label("Search").fill("huygens landed")
    expect(rows).to_have_count(1)
    assert "q=huygens" in page.url
    page.get_by_label("Search").fill("")
    page.get_by_label("Type").select_option("2-hop")
    page.get_by_label("Order").select_option("slow")
    times = page.locator("tbody tr td:nth-last-child(2)").all_inner_texts()
    seconds = [float(text.split()[0]) / (1000 if text.endswith("ms") else 1) for text in times]
    assert len(seconds) == 12 and seconds == sorted(seconds, reverse=True)
    page.reload()  # the address holds the filters
    expect(rows).to_have_count(12)
    page.get_by_role("link", name="In which year was the moon on which the probe Huygens").click()
    expect(page.locator("h1")).to_contain_text("Huygens")
    draw_graphs(page)
    assert page.locator(".graph canvas").count() >= 2
    page.get_by_text("Nodes and edges as tables").first.click()
    terms = page.locator(
        "table:has(caption:text-matches('Strongest edges')) tbody tr:first-child td:last-child"
    ).first
    assert terms.inner_text().strip()
    page.evaluate("window.scrollTo(0, 0)")
    keep(page, "report-question")
    page.locator(".graph").first.scroll_into_view_if_needed()
    page.locator(".graph").first.hover()


def test_the_runs_of_one_system(opened: Open, address: str) -> None:
    page = opened(f"{address}#/questions/0?q=huygens")
    expect(page.locator("nav.tabs a")).to_have_text(["n2n", "rag"])
    page.get_by_label("System").select_option("rag")
    expect(page.locator("nav.tabs a")).to_have_text(["rag"])
    assert "#/questions/1?" in page.url and "q=huygens" in page.url
    page.get_by_label("System").select_option("")
    expect(page.locator("nav.tabs a")).to_have_text(["n2n", "rag"])


@pytest.fixture(scope="module")
def talked(small: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a conversation that a graph encoder answered."""
    import torch

    from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape, save_encoder

    folder = tmp_path_factory.mktemp("talked")
    tiny_model(folder / "trained" / "model")
    torch.manual_seed(5)
    save_encoder(GraphEncoder(Shape(32)), folder / "trained")
    turns = [
        {"id": f"t{number}", "question": question, "answers": ["x"]}
        for number, question in enumerate(("Who discovered Titan?", "Which probe landed there?"))
    ]
    (folder / "questions.jsonl").write_text(json.dumps({"id": "titan", "turns": turns}) + "\n")
    settings = {"trained": str(folder / "trained"), "memory": "random", "k": "6"}
    pyfast.answer(
        folder / "questions.jsonl", index=small, llm=f"transformers:{folder / 'trained' / 'model'}",
        system="graph_convqa", settings=settings, run=folder / "run",
    )  # fmt: skip
    return pyfast.report(folder / "run", folder / "report")


def test_the_token_graph_of_a_turn(opened: Open, talked: Path) -> None:
    with served(talked) as url:
        page = opened(f"{url}#/question/0/t1", 400, True)
        page.get_by_text("Token graph", exact=True).click()
        draw_graphs(page)
        graph = page.get_by_role("img", name="Token graph of")
        words, entities = re.findall(r"(\d+) words, (\d+) entities", graph.get_attribute("aria-label") or "")[0]
        record = next(one for one in pyfast.Run(talked.parent / "run").records if one.id == "t1")
        first = [one.snippet.split() for one in record.evidence]
        shown = sum(len(one) for one in first[: int((graph.get_attribute("aria-label") or "").split()[3])])
        assert int(words) == shown <= record.trace["nodes"] and int(entities) > 0
        faultless(page)


def faultless(page: Page) -> None:
    """axe finds nothing."""
    faults = Axe().run(page, options={"runOnly": LEVELS}).response["violations"]
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in faults] == [], page.url


def test_the_table_of_ranks_says_what_the_run_says(opened: Open, address: str, place: Path) -> None:
    page = opened(f"{address}#/question/0/ex-12")
    path = page.locator(".ranks tbody tr")
    expect(path.first).to_be_visible()
    record = next(one for one in pyfast.Run(place / "n2n").records if one.id == "ex-12")
    uris = [one.uri for one in record.evidence]
    expected = [f"rank {uris.index(uri) + 1}" for uri in ("passages/cassini-huygens.md", "tables/moons.csv")]
    assert path.last.locator("td").all_inner_texts()[1:] == expected
    gold = page.locator(".step").last.locator("details").first
    expect(gold.locator("summary > .badge.gold").first).to_have_text("2 of 2 gold")
    passages = uris.count("tables/moons.csv") + uris.count("passages/cassini-huygens.md")
    assert passages > 2  # each document counts once, and none of its passages is more gold than the others
    within = gold.locator("li.passage > details > summary > .badge.gold")
    expect(within).to_have_text(["in a gold document"] * passages)


def test_the_first_screen_leads_to_the_lost_gold_passages(opened: Open, address: str, place: Path) -> None:
    page = opened(address)
    card = page.locator(".run").first.locator("a.card", has_text="without all gold passages")
    lost, of = map(int, re.findall(r"(\d+) of (\d+)", card.inner_text())[0])
    card.click()
    expect(page.locator("tbody tr")).to_have_count(lost)
    counts = page.locator("tbody tr td:nth-last-child(3)").all_inner_texts()
    assert all(int(reached) < int(gold) for reached, _, gold in map(str.split, counts)) and 0 < lost < of


def test_evidence_in_its_document_and_a_row_in_its_table(opened: Open, address: str, place: Path) -> None:
    page = opened(f"{address}#/question/0/ex-12")
    for uri, selector in (("passages/cassini-huygens.md", "span.evidence"), ("tables/moons.csv", "tr.evidence")):
        record = next(one for one in pyfast.Run(place / "n2n").records if one.id == "ex-12")
        piece = next(one for one in record.evidence if one.uri == uri)
        passage = page.locator("details[open] > ol > li.passage", has=page.get_by_text(piece.segment)).last
        passage.locator("summary").first.click()
        passage.get_by_text("In its document").click()
        marked = passage.locator(selector)
        expect(marked).to_have_count(1)
        assert " ".join(marked.inner_text().split()) == " ".join(piece.snippet.split())


def test_two_traces_side_by_side_by_one_click(opened: Open, address: str) -> None:
    page = opened(f"{address}#/compare")
    expect(page.locator("tbody tr").first).to_be_visible()
    scores = [row.locator(".badge").all_inner_texts() for row in page.locator("tbody tr").all()]
    apart = [abs(float(row[0]) - float(row[1])) for row in scores if len(row) == 2]
    assert len(apart) >= 25 and apart == sorted(apart, reverse=True)
    page.locator("tbody tr a").first.click()
    expect(page.locator(".side > .box")).to_have_count(2)
    expect(page.locator(".side dl.facts")).to_have_count(2)


VIEWS = (
    "#/",
    "#/questions/0",
    "#/question/0/ex-12",
    "#/question/0/evil%3Cb%3E%2F..%2F%26",
    "#/compare",
    "#/compare/ex-12",
)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_axe_finds_nothing(opened: Open, address: str, width: int, dark: bool) -> None:
    for view in VIEWS:
        page = opened(address + view, width, dark)
        expect(page.locator("h1")).to_be_visible()
        open_all(page)
        page.wait_for_load_state("networkidle")
        draw_graphs(page)
        faultless(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        page.close()


def test_hostile_texts_are_texts(opened: Open, address: str) -> None:
    for view in VIEWS:
        page = opened(address + view)
        expect(page.locator("h1")).to_be_visible()
        open_all(page)
        page.wait_for_load_state("networkidle")
        links = page.eval_on_selector_all("a", "(all) => all.map((one) => one.getAttribute('href'))")
        assert all(link.startswith("#/") for link in links)
        text = page.locator("body").inner_text()
        assert not {"\u202e", "\u0007"} & {*text}
        if "evil" in view:
            assert "<script>window.hacked = 1</script>" in text and "⟨U+202E⟩" in text and "⟨U+0007⟩" in text
        assert page.locator("main img, main script").count() == 0
    page = opened(f"{address}#/%3Cscript%3E/\u202e/%")
    expect(page.get_by_role("alert").or_(page.locator("h1")).first).to_be_visible()


def test_a_single_question_opens_from_the_disk(opened: Open, place: Path) -> None:
    for id in ("ex-12", "evil<b>/../&"):
        file = pyfast.report(place / "n2n", place / "one.html", single=id)
        page = opened(file.as_uri())
        expect(page.locator("h1")).to_be_visible()
        draw_graphs(page)
        page.get_by_text("Its text").or_(page.get_by_text("The index has no such document")).first.click()
    page = opened((place / "report" / "index.html").as_uri())
    expect(page.locator("main")).to_contain_text("pyfast view RUN")


def test_the_page_follows_a_run(opened: Open, place: Path) -> None:
    """Counts grow on a page that nobody reloads."""
    run = place / "followed"
    with hostile("--weights", "good=1", "--allow", "8") as url:  # the other requests wait
        command = [
            sys.executable,
            "-m",
            "pyfast",
            "answer",
            str(place / "questions.jsonl"),
            "--index",
            str(place / "index"),
        ]
        options = ["--system", "rag", "--run", str(run), "--llm", f"openai:m@{url}", "--concurrency", "4"]
        answering = subprocess.Popen([*command, *options])
        stop = threading.Event()
        try:
            while not (run / "answers.jsonl").is_file() or not (run / "answers.jsonl").stat().st_size:
                assert answering.poll() is None
                time.sleep(0.05)
            started: list[str] = []
            ready = threading.Event()
            viewing = threading.Thread(
                target=pyfast.view,
                args=(run,),
                kwargs={"stop": stop, "on_start": lambda address: (started.append(address), ready.set())},
            )
            viewing.start()
            assert ready.wait(30)
            page = opened(started[0])
            expect(page.locator("main")).to_contain_text("8 of 26 questions", timeout=15_000)
            urlopen(f"{url}/allow/26").close()
            expect(page.locator("main")).to_contain_text("26 of 26 questions, system rag: done", timeout=30_000)
        finally:
            stop.set()
            answering.kill()
            answering.wait()
    viewing.join(10)


def test_what_is_no_answer_is_said_in_words(opened: Open, tmp_path: Path) -> None:
    words = {
        "silent": "(none: the system abstained)",
        "blank": "(an empty text)",
        "fails": "(none: the question failed)",
    }
    questions = [{"id": id, "question": "Which moon?"} for id in words]
    for name in ("A", "B"):
        pyfast.answer(questions, index=None, system=UNSURE, run=tmp_path / name)
    gold = [{"id": "silent", "answerable": False}, {"id": "blank", "supporting": ["titan"]}]
    pyfast.report([tmp_path / "A", tmp_path / "B"], tmp_path / "report", gold)
    with served(tmp_path / "report") as url:
        page = opened(f"{url}#/questions/0")
        listed = page.locator("tbody tr td:nth-child(2)")
        expect(listed).to_have_text([words["silent"], words["blank"], "ValueError: no such moon"])
        for id, told in words.items():
            page = opened(f"{url}#/question/0/{id}")
            expect(page.locator("dd .answer").first).to_have_text(told)
        page = opened(f"{url}#/question/0/silent")
        expect(page.get_by_text("(none, so abstaining is correct)")).to_be_visible()
        page = opened(f"{url}#/compare")
        expect(page.get_by_text(words["fails"])).to_have_count(2)
        faultless(page)


def test_10_000_questions(browser: Browser, small: Index, tmp_path: Path) -> None:
    """The first paint comes within a second; the first screen and the list take less than 30 MB."""
    questions = tmp_path / "questions.jsonl"
    lines = ({"id": f"q{n}", "question": f"What is moon {n} of Saturn?", "answers": ["Titan"]} for n in range(BIG))
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pyfast.answer(questions, index=small, llm="instant", system="rag", run=tmp_path / "run")
    pyfast.report(tmp_path / "run", tmp_path / "report")
    with served(tmp_path / "report") as url:
        page = browser.new_page()
        page.goto(url)
        expect(page.locator("h1")).to_be_visible()
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        page.goto(f"{url}#/questions/0")
        expect(page.locator("tbody tr")).to_have_count(50)
        heap = heap_of(page)
        page.close()
    assert painted < 1000 and heap < 30e6, (painted, heap)


def heap_of(page: Page) -> float:
    """Bytes of JavaScript's objects that are in use."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])
