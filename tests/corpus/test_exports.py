"""Files that other programs export: chats, graphs, logs, and tables below pairs."""

import json
import unicodedata
from pathlib import Path

import openpyxl
import pandas
import pptx
import pyarrow
import pytest
from pyarrow import parquet

import pyfast
from pyfast.corpus import KnowledgeGraph, Table, TextDocument, Unread, read


def found(path: Path) -> tuple[list[object], list[str]]:
    unread: list[Unread] = []
    documents = list(read([path], unread))
    return documents, [("" if one.missing else "remark: ") + one.reason for one in unread]


CHAT = [
    {
        "type": "message",
        "user": "U1",
        "ts": "1714741800.000100",
        "text": "The launch moves to Tuesday.",
        "files": [],
    },
    {"id": "x", "title": "T", "text": "Snow fell.", "metadata": {"user": "U2", "tags": ["a", "b"]}, "score": 3},
    {"user": "U1", "text": "", "files": [{"title": "Budget plan.xlsx"}]},
    {"text": ""},
    {"kind": "text", "id": "k", "text": "Rain.", "role": "gold", "meta": {"user": "U3"}},
]


def test_other_keys_of_texts_are_metadata(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(json.dumps(CHAT))
    documents, said = found(tmp_path / "chat.json")
    assert [json.loads(one.outline.about or "{}") for one in documents if isinstance(one, TextDocument)] == [
        {"type": "message", "user": "U1", "ts": "1714741800.000100"},
        {"user": "U2", "tags": ["a", "b"], "score": 3},
        {"user": "U1"},
        {},
        {"user": "U3"},
    ]
    assert said == [
        'record 3: the text is empty, so searches cannot find this record; its other keys are "user", "files"',
        'remark: objects and long values of records are not read: "files"',
    ]


def test_filters_read_other_keys_of_texts(tmp_path: Path) -> None:
    lines = [json.dumps(one) for one in CHAT[:2]]
    (tmp_path / "chat.jsonl").write_text("\n".join(lines))
    pyfast.build_index(tmp_path / "chat.jsonl", tmp_path / "IDX")
    for condition, uri in (("meta.user=U2", "x"), ("meta.tags=b", "x"), ("meta.ts>=1714741800", "chat.jsonl#1")):
        part = pyfast.open_index(tmp_path / "IDX", filter=condition)
        hits = part.search(["snow launch"], 5)[0]
        assert [part.corpus.segment(int(part.passages[it]))["uri"] for it in hits.passages] == [uri]


def test_a_bad_line_of_triples_falls_alone(tmp_path: Path) -> None:
    good = "<http://x/a> <http://x/knows> <http://x/{}> .\n"
    bad = ["<http://x/b> <http://x/knows> <http://x/c d> .\n", '<http://x/a> <http://x/says> "open .\n', "no\n"]
    (tmp_path / "a.nt").write_text("".join(line + good.format(k) for k, line in enumerate(bad)))
    (graph,), said = found(tmp_path / "a.nt")
    assert isinstance(graph, KnowledgeGraph) and [it.tail for it in graph.triples] == ["0", "1", "2"]
    assert [one[:7] for one in said] == ["line 1:", "line 3:", "line 5:"]
    (tmp_path / "a.nt").write_text("no\n")
    assert found(tmp_path / "a.nt")[0] == []


def test_names_of_blank_nodes_follow_from_the_file(tmp_path: Path) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    (tmp_path / "a.ttl").write_text(
        f'<http://x/a> <http://x/at> [ <http://x/in> "Odda" ], [ <http://x/in> "Bonn" ], _:b .\n'
        f'<http://x/c> <http://x/at> [ {label} "Here" ], [ {label} "Here" ] .\n'
    )
    (graph,), said = found(tmp_path / "a.ttl")
    assert isinstance(graph, KnowledgeGraph) and not said and [graph] == found(tmp_path / "a.ttl")[0]
    assert {(it.head, it.tail) for it in graph.triples} == {
        ("a", "_:a.ttl#1"),
        ("_:a.ttl#1", "Odda"),
        ("a", "_:a.ttl#2"),
        ("_:a.ttl#2", "Bonn"),
        ("a", "_:a.ttl#b"),
        ("c", "Here"),
        ("c", "Here _:a.ttl#4"),
    }


def test_colours_of_a_log_are_left_out(tmp_path: Path) -> None:
    log = "\x1b[31merror\x1b[0m: linker failed\n\n\x1b[1;33mwarn\x1b[0ming, see \x1b]8;;http://x\x1b\\page\x1b]8;;\x07"
    (tmp_path / "ci.txt").write_text(log)
    index = pyfast.build_index(tmp_path / "ci.txt", tmp_path / "IDX")
    lines = [index.corpus.render(int(place)) for place in index.passages]
    assert lines == ["ci. error: linker failed", "ci. warning, see page"]
    assert len(index.search(["error"], 5)[0].passages) == 1


def test_overstruck_letters_of_a_manual_page_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "rotlog.txt").write_text("N\bNA\bAM\bME\bE\n    r\br\bro\bot\bt - turn the _\bl_\bo_\bg")
    (document,) = read([tmp_path / "rotlog.txt"])
    assert document.text == "NAME\n    rot - turn the log"


@pytest.mark.parametrize(
    "sequence",
    [
        *(
            "\x1b(B\x1b[m",
            "\x1b)0",
            "\x1b*A",
            "\x1b+B",
            "\x1b-A",
            "\x1b.A",
            "\x1b/A",
            '\x1b(">',
            "\x1b#8",
            "\x1b F",
            "\x1b%G",
        ),
        *(f"\x1b{letter}" for letter in "78=>cDEHMNOZ"),
        *(f"\x1b{begin}1;2|74 words\x1b\\" for begin in "]PX^_k"),
        *("\x1b[?2004h", "\x1b[38;5;1m", "\x1b]0;title\x07"),
    ],
)
def test_sequences_for_terminals_are_left_out(sequence: str, tmp_path: Path) -> None:
    (tmp_path / "ci.txt").write_text(f"{sequence}Done, {sequence}all of it{sequence}.")
    assert [one.text for one in found(tmp_path / "ci.txt")[0] if isinstance(one, TextDocument)] == [
        "Done, all of it."
    ]


@pytest.mark.parametrize("end", ["", "\x1a", "\n\x1a", "\r\n\x1a\x1a"])
def test_the_end_of_a_file_of_dos_is_no_row(end: str, tmp_path: Path) -> None:
    for name, text in (("a.csv", "Name,City\nHolm,Odda"), ("a.tsv", "Name\tCity\nHolm\tOdda")):
        (tmp_path / name).write_bytes((text + end).encode())
        (table,), said = found(tmp_path / name)
        assert isinstance(table, Table) and list(table.rows) == [("Holm", "Odda")] and not said
    (tmp_path / "triples.tsv").write_bytes(f"Odda\tin\tNorway{end}".encode())
    (graph,), said = found(tmp_path / "triples.tsv")
    assert isinstance(graph, KnowledgeGraph) and len(graph.triples) == 1 and not said


def test_sequences_for_terminals_in_other_files(tmp_path: Path) -> None:
    red = "\x1b[31mred\x1b[0mdish"
    (tmp_path / "a.csv").write_text(f"Name,Colour\nHolm,{red}\n")
    (tmp_path / "b.md").write_text(f"It is {red}.\n")
    (tmp_path / "c.jsonl").write_text(json.dumps({"text": f"It is {red}."}))
    (tmp_path / "d.json").write_text(json.dumps([{"log": red, "level": "low"}]))
    index = pyfast.build_index(tmp_path, tmp_path / "IDX")
    assert [index.corpus.render(int(place)) for place in index.passages] == [
        "a | Name: Holm | Colour: reddish",
        "b. It is reddish.",
        "It is reddish.",
        "d | log: reddish | level: low",
    ]


def test_what_never_ends_for_a_terminal_is_kept(tmp_path: Path) -> None:
    """A text for a terminal has a bound, so that a lost end costs no page."""
    (tmp_path / "ci.txt").write_text(text := "\x1bPstart " + "word " * 500 + "\x1b\\end")
    (document,), _ = found(tmp_path / "ci.txt")
    assert isinstance(document, TextDocument) and document.text == text.replace("\x1b\\", "")


BANK = """\
"Kontonummer:";"DE12 / Girokonto";

"Bis:";"30.04.2024";
"Kontostand vom 30.04.2024:";"1.234,56 EUR";

"Tag";"Empfänger";"Zweck";"Betrag (EUR)"
"29.04.2024";"Stadtwerke München";"Abschlag; Vertrag 77";"-85,00"
"15.04.2024";"Müller GmbH";"Gehalt";"2.500,00"
"""
ABOVE = "Kontonummer: DE12 / Girokonto; Bis: 30.04.2024; Kontostand vom 30.04.2024: 1.234,56 EUR"
DAY = ("29.04.2024", "Stadtwerke München", "Abschlag; Vertrag 77", "-85,00")


@pytest.mark.parametrize(
    ("text", "above", "header", "row"),
    [
        (BANK, ABOVE, ("Tag", "Empfänger", "Zweck", "Betrag (EUR)"), DAY),
        (BANK.replace('";\n', '"\n'), ABOVE, ("Tag", "Empfänger", "Zweck", "Betrag (EUR)"), DAY),
        (
            BANK.replace("; Vertrag", " Vertrag").replace('"', ""),
            ABOVE,
            ("Tag", "Empfänger", "Zweck", "Betrag (EUR)"),
            (*DAY[:2], "Abschlag Vertrag 77", DAY[3]),
        ),
        (
            "Report,Sessions by page\nDates,2024-05\n\nPage,Sessions,Bounce\n/home,120,0.3\n/about,40,0.5\n",
            "Report Sessions by page; Dates 2024-05",
            ("Page", "Sessions", "Bounce"),
            ("/home", "120", "0.3"),
        ),
        ("Account:;DE12\nDay;Payee;Sum\n29.04.;Works;-85,00\n", "Account: DE12", ("Day", "Payee", "Sum"), None),
        (
            '"Source","Indicators",\n\n"Updated","2024-05-30",\n\n"Land","Code","1960",\n"Aruba","ABW","54608",\n',
            "Source Indicators; Updated 2024-05-30",
            ("Land", "Code", "1960", ""),
            ("Aruba", "ABW", "54608", ""),
        ),
        # Not certain: the first line is the header.
        ("name,city\nBob,Odda,x\nAnn,Bonn,y\nJoe,Mell,z\n", "", ("name", "city"), ("Bob", "Odda", "x")),
        ('"a\nb",c\nBob,Odda,x\nAnn,Bonn,y\n', "", ("a\nb", "c"), ("Bob", "Odda", "x")),
    ],
)
def test_pairs_above_the_header(
    tmp_path: Path, text: str, above: str, header: tuple[str, ...], row: tuple[str, ...] | None
) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    (table,), said = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and (table.section, table.header) == (above, header)
    assert table.rows[0] == row or row is None
    assert not [one for one in said if not one.startswith("remark: ")]


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        (
            "Page,Views\n/home,1234\n/about,766\n\nDay,Users\n2023-01-01,100\n2023-01-02,120\n",
            [("", ("Page", "Views"), 2), ("", ("Day", "Users"), 2)],
        ),
        (
            "# ---\n# All Web Site Data\n# ---\n\nPage,Views,Avg\n/home,1234,1\n,,\nDay Index,Views\n1/1/23,100\n",
            [("--- All Web Site Data ---", ("Page", "Views", "Avg"), 1), ("", ("Day Index", "Views"), 1)],
        ),
        (
            "Page,Views\n/home,12\n\nVisits by day\n\nDay,Users\n2023-01-01,100\n",
            [("", ("Page", "Views"), 1), ("Visits by day", ("Day", "Users"), 1)],
        ),
        # No names with numbers below them: one table, with a gap.
        ("Name,Score\nAnn,3\n\nCid,5\nDan,6\n", [("", ("Name", "Score"), 3)]),
        ("Name,Note\nAnn,a\n\nCid,b\nDan,c\n", [("", ("Name", "Note"), 3)]),
        ('Name,Note,Score\nAnn,"a\n\nb",3\nCid,none,4\n', [("", ("Name", "Note", "Score"), 2)]),
    ],
)
def test_tables_below_each_other(
    tmp_path: Path, text: str, tables: list[tuple[str, tuple[str, ...], int]]
) -> None:
    (tmp_path / "a.csv").write_text(text)
    documents, said = found(tmp_path / "a.csv")
    assert [(it.section, it.header, len(it.rows)) for it in documents if isinstance(it, Table)] == tables
    assert [it.uri for it in documents if isinstance(it, Table)] == ["a.csv", "a.csv#table-2"][: len(tables)]
    assert said == []


def test_soft_hyphens_of_pages(tmp_path: Path) -> None:
    """A browser shows them only where it ends a line."""
    table = "<table><tr><th>Ver&shy;sion</th><th>Note</th></tr><tr><td>1</td><td>Sta&shy;ble</td></tr></table>"
    page = f"<title>Steam&shy;ship law</title><h2>Lia&shy;bility</h2><p>The Donau&shy;dampf company.</p>{table}"
    (tmp_path / "p.html").write_text(page)
    documents, _ = found(tmp_path / "p.html")
    assert "\u00ad" not in repr(documents) and "\\xad" not in repr(documents)
    assert "Steamship law" in repr(documents) and "Donaudampf" in repr(documents) and "Version" in repr(documents)


def test_lone_quotes_in_a_file_of_tabs(tmp_path: Path) -> None:
    """As in lists of films: a quote belongs to a title, and each line has its cells."""
    rows = ['b\t"Rolling in the Deep\t1997', "c\tHolm\t2001", 'd\tA Ruler of 12"\t2002', "e\tFish\t2003"]
    (tmp_path / "t.tsv").write_text("id\ttitle\tyear\n" + "\n".join(rows) + "\n")
    ((table,), said) = found(tmp_path / "t.tsv")
    assert isinstance(table, Table) and list(table.rows) == [tuple(row.split("\t")) for row in rows] and not said
    # Quotes that hold a line end are quotes.
    (tmp_path / "t.tsv").write_text('id\ttitle\n1\t"two\nlines"\n2\tone\n')
    ((table,), said) = found(tmp_path / "t.tsv")
    assert isinstance(table, Table) and list(table.rows) == [("1", "two\nlines"), ("2", "one")] and not said


def test_documents_of_mongo_and_nested_texts(tmp_path: Path) -> None:
    lines = [
        {"_id": {"$oid": "65f1c0ffee0000000000a001"}, "text": "Odda lies at the fjord."},
        {"city": "Odda", "info": {"text": "It rains.\nBergen is wet.\tTromso is cold.", "path": "a\\new"}},
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    documents, said = found(tmp_path / "m.jsonl")
    assert [it.uri for it in documents if isinstance(it, TextDocument)] == ["65f1c0ffee0000000000a001"]
    index = pyfast.build_index(tmp_path / "m.jsonl", tmp_path / "I")
    for word in ("Bergen", "Tromso", "rains"):
        assert word in index.text(int(index.search([word], 1)[0].passages[0])), said
    (table,) = (it for it in documents if isinstance(it, Table))
    assert json.loads(table.rows[0][-1])["path"] == "a\\new"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Isparta'da yaşayan çiftçiler bu yıl gül hasadına erken başladı. Işık Çağlar köye döndü.", "cp1254"),
        ("Město leží na řece a jeho obyvatelé každý den chodí pěšky do práce. Příliš žluťoučký kůň.", "cp1250"),
        ("Petőfi Sándor költő és forradalmár volt, Kiskőrösön született 1823 elején.", "cp1250"),
        ("As regiões têm milhões de habitantes; põe-se a questão das ações, e não há soluções fáceis.", "cp1252"),
        ("Õpetaja võttis põllult õunu ja sõitis kõrge mõisa juurde. Ta nägi kõike, mis jäi Málagasse.", "cp1252"),
        ("Bærinn stendur við fjörðinn og þar búa um þrjú þúsund manns. Áður var þar síldarvinnsla.", "cp1252"),
        ("Die Stadt liegt an der Lahn und hat viele schöne Häuser. Größere Straßen führen hinüber.", "cp1252"),
    ],
)
def test_texts_of_eight_bits(tmp_path: Path, text: str, encoding: str) -> None:
    (tmp_path / "t.txt").write_bytes((f"{text}\n" * 4).encode(encoding))
    ((document,), _) = found(tmp_path / "t.txt")
    assert isinstance(document, TextDocument) and document.text.splitlines()[0] == text


def test_powers_on_slides(tmp_path: Path) -> None:
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.shapes.title.text = "Sizes"
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    for said, raised in (
        ("A lake of 10", 0),
        ("6", 30000),
        (" litres, CO", 0),
        ("2", -25000),
        (" and 4", 0),
        ("5", 0),
    ):
        run = paragraph.add_run()
        run.text = said
        run.font._element.set("baseline", str(raised))
    slides.save(tmp_path / "p.pptx")
    documents, _ = found(tmp_path / "p.pptx")
    assert "A lake of 10^6 litres, CO2 and 45" in repr(documents)


def test_names_of_files_with_accents_apart(tmp_path: Path) -> None:
    """As some systems write them. Questions and filters name them as people type them."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / unicodedata.normalize("NFD", "Größe.txt")).write_text("The lamp is 3 m tall.")
    pyfast.build_index(tmp_path / "files", tmp_path / "I")
    assert [it.uri for it in pyfast.list_documents(tmp_path / "I")] == ["Größe.txt"]
    assert pyfast.sync_documents(tmp_path / "I", tmp_path / "files").unchanged == 1


@pytest.mark.parametrize(
    "first, second, header",
    [
        (
            "Item,Price,Stock\nTea,5,10\nMilk,1,30",
            "Client,Place,Land,Sum\nAnn,Oslo,NO,100",
            ("Item", "Price", "Stock"),
        ),
        ("Date,Rate\n2024-01-01,3.5\n2024-02-01,3.6", "Land,Code,GDP\nItaly,IT,2000", ("Date", "Rate")),
        ("Centre,Budget\nIT,1.0\nHR,2.0", "Centre,Month,Spent\nIT,Jan,0.9\nHR,Jan,0.1", ("Centre", "Budget")),
        ("Code,Land\nNO,Norway\nIT,Italy", "City,Land,River\nOslo,Norway,Aker", ("Code", "Land")),
        ('"A;B";C\nIT;1.000,00\nHR;2.000,00', "C;D;E\nIT;x;9,00\nIT;y;9,50", ("A;B", "C")),
    ],
)
def test_a_narrow_table_is_no_caption_of_the_next_one(
    first: str, second: str, header: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(f"{first}\n\n{second}\n")
    (one, other), said = found(tmp_path / "a.csv")
    assert isinstance(one, Table) and isinstance(other, Table)
    assert (one.header, len(one.rows), one.section) == (header, first.count("\n"), "")
    assert (len(other.header), len(other.rows), other.section) == (len(header) + 1, second.count("\n"), "")
    assert not said


@pytest.mark.parametrize(
    "pairs",
    [
        "Account,Main\nFrom,2024-01-01\nTo,2024-01-31",
        "Account,Main\nOwner,Ann",
        "IBAN,DE12\nSum,10.00\nLimit,5.00",
    ],
)
def test_pairs_stay_the_caption_of_a_table(pairs: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{pairs}\n\nDay,Text,Amount\n2024-01-02,rent,5\n2024-01-03,tea,6\n")
    (table,), _ = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and table.section == pairs.replace(",", " ").replace("\n", "; ")


@pytest.mark.parametrize(
    "name, text, header",
    [
        ("a.tsv", '"mpg"\t"hp"\n"Mazda RX4"\t21\t110\n"Datsun"\t22.8\t93\n', ("", "mpg", "hp")),
        ("a.tsv", "mpg\thp\nMazda RX4\t21\t110\nDatsun\t22.8\t93\n", ("", "mpg", "hp")),
        ("a.csv", "Length,Species\n1,5.1,setosa\n2,4.9,setosa\n", ("", "Length", "Species")),
        ("a.csv", '"Gear","Cylinders"\n"Mazda","auto",6\n"Datsun","hand",4\n', ("", "Gear", "Cylinders")),
        ("a.csv", "a,b\n1,2,\n3,4,\n", ("a", "b")),
        ("a.csv", "name,city\nBob,Odda,12\nAnn,Bonn,13\n", ("name", "city")),
    ],
)
def test_names_of_rows_lack_a_name_in_files_of_r(
    name: str, text: str, header: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    (table,), said = found(tmp_path / name)
    assert isinstance(table, Table) and table.header == header
    assert ("remark: " in "".join(said) and "as in files written by R" in "".join(said)) == (header[0] == "")


def test_sheets_with_the_names_of_tables(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.title = "Data"
    for row in [("Team", "Points"), ("Red", 5), (), ("Player", "Goals"), ("Ann", 3)]:
        book.active.append(row)
    other = book.create_sheet("Data-table-2")
    other.append(("Land", "GDP"))
    other.append(("Italy", 2000))
    book.save(tmp_path / "a.xlsx")
    documents, said = found(tmp_path / "a.xlsx")
    assert [(one.uri, one.header) for one in documents if isinstance(one, Table)] == [
        ("a.xlsx#Data", ("Team", "Points")),
        ("a.xlsx#Data-table-3", ("Player", "Goals")),
        ("a.xlsx#Data-table-2", ("Land", "GDP")),
    ]
    pyfast.build_index(tmp_path / "a.xlsx", tmp_path / "INDEX")
    assert not said


def test_a_record_with_the_uri_of_a_table_falls_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("X,Y,Z\n1,2,3\n\nP,Q\n5,6\n")
    records = [{"id": "a.csv#table-2", "text": "Snow."}, {"id": "b.jsonl#x", "text": "Rain."}]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [*records, records[1]]))
    unread: list[Unread] = []
    pyfast.build_index(tmp_path, tmp_path / "INDEX", on_unread=unread.append)
    assert ["is left out, because it has the id of document 2" in one.reason for one in unread] == [True, False]
    assert "'b.jsonl#x' is the same as document 2" in unread[1].reason


@pytest.mark.filterwarnings("ignore:Period")
def test_periods_of_pandas(tmp_path: Path) -> None:
    shown = {
        "M": "2024-01", "3M": "2024-01", "Q-DEC": "2024Q1", "Y-JUN": "2024", "D": "2024-01-03", "B": "2024-01-03",
        "W-SUN": "2024-01-01/2024-01-07", "W-WED": "2023-12-28/2024-01-03", "h": "2024-01-03 10:00",
        "min": "2024-01-03 10:05", "s": "2024-01-03 10:05:06", "ms": "2024-01-03 10:05:06.123",
    }  # fmt: skip
    frame = pandas.DataFrame(
        {freq: pandas.PeriodIndex([said.split("/")[0], pandas.NaT], freq=freq) for freq, said in shown.items()}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    # Programs that do not import pandas see numbers with a remark beside them.
    plain = [
        pyarrow.field(
            field.name,
            pyarrow.int64(),
            metadata={
                "ARROW:extension:name": "pandas.period",
                "ARROW:extension:metadata": json.dumps({"freq": field.name}),
            },
        )
        for field in table.schema
    ]
    columns = [column.combine_chunks().storage for column in table.columns]
    parquet.write_table(pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(plain)), tmp_path / "b.parquet")
    for name in ("a.parquet", "b.parquet"):
        (one,), said = found(tmp_path / name)
        assert isinstance(one, Table) and dict(zip(one.header, one.rows[0], strict=True)) == shown
        assert not any(one.rows[1]) and not said


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_column_of_midnights_is_a_column_of_dates(kind: str, tmp_path: Path) -> None:
    """As in the CSV file that pandas writes of the same frame; a single other time, in a late batch, is enough."""
    days = pandas.Series(pandas.date_range("2024-05-01", periods=5000))
    at = days.where(days.index < 4999, days + pandas.Timedelta(hours=10))
    zone = days.dt.tz_localize("UTC")
    frame = pandas.DataFrame({"day": days.where(days.index != 1), "at": at, "zone": zone})
    frame.to_csv(tmp_path / "a.csv", index=False)
    getattr(frame, f"to_{kind}")(tmp_path / f"a.{kind}")
    written = pandas.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    (one,), said = found(tmp_path / f"a.{kind}")
    assert isinstance(one, Table) and not said
    assert [row[0] for row in one.rows] == written["day"].to_list()
    assert one.rows[0][1:] == ("2024-05-01T00:00:00", "2024-05-01T00:00:00+00:00")
    assert one.rows[4999][1] == "2038-01-07T10:00:00"
    frame[["day"]].assign(id=[f"d{k}" for k in frame.index], text="Rain.").iloc[:3].to_parquet(
        tmp_path / "t.parquet"
    )
    with_day = pyfast.build_index(tmp_path / "t.parquet", tmp_path / "IDX")
    assert with_day.corpus.metadata(int(with_day.passages[2]))["day"] == "2024-05-03"


def test_the_number_of_a_row_counts_the_header_if_the_file_has_one(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"name": ["Ann", "Bob"], "age": [1, 2]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_excel(tmp_path / "b.xlsx", index=False)
    frame.to_html(tmp_path / "c.html", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_feather(tmp_path / "q.arrow")
    frame.to_json(tmp_path / "r.json", orient="records")
    frame.to_json(tmp_path / "s.jsonl", orient="records", lines=True)
    table = {"kind": "table", "id": "t.jsonl", "title": "", "header": ["name"], "rows": [["Ann"], ["Bob"]]}
    (tmp_path / "t.jsonl").write_text(json.dumps(table))
    tables = [one for one in found(tmp_path)[0] if isinstance(one, Table)]
    assert {one.uri[0]: one.number_of(one.rows.index(("Bob", "2")[: len(one.header)])) for one in tables} == {
        **dict.fromkeys("abc", 3),
        **dict.fromkeys("pqrst", 2),
    }


SHEET = """<table class="waffle"><thead><tr><th class="row-header freezebar-vertical-handle"></th>
<th class="column-headers-background">A</th>{shim}<th class="column-headers-background">B</th></tr></thead><tbody>
<tr>{head}1</div></th><td>Product</td>{cell}<td class="s0">Price</td></tr>
<tr><th class="freezebar-cell row-header-shim row-headers-background"></th><td class="freezebar-cell"></td>{cell}
<td class="freezebar-cell"></td></tr>
<tr>{head}2</div></th><td>Lamp</td>{cell}<td class="s1">42</td></tr>
<tr>{head}3</div></th><td></td>{cell}<td></td></tr><tr>{head}4</div></th><td>Rope</td>{cell}<td>5</td></tr></table>"""


@pytest.mark.parametrize("cell", ["", '<td class="freezebar-cell"></td>'])
def test_a_page_of_a_google_sheet(cell: str, tmp_path: Path) -> None:
    head = '<th id="0R0" class="row-headers-background"><div class="row-header-wrapper">'
    shim = '<th class="freezebar-cell"></th>' if cell else ""
    (tmp_path / "Prices.html").write_text(SHEET.format(head=head, cell=cell, shim=shim))
    (table,), said = found(tmp_path / "Prices.html")
    assert isinstance(table, Table) and not said and table.header == ("Product", "Price")
    assert list(table.rows) == [("Lamp", "42"), ("Rope", "5")]


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
@pytest.mark.parametrize(
    ("text", "header", "rows"),
    [
        (
            '"mpg" "cyl"\n"Mazda RX4" 21 6\n"Datsun 710" 22.8 4\n',
            ("", "mpg", "cyl"),
            [("Mazda RX4", "21", "6"), ("Datsun 710", "22.8", "4")],
        ),
        (
            '"name" "city" "since"\r\n"1" "Holm" "New \\"York\\"" NA\r\n"2" "Berg" "Bonn" 2024-05-01\r\n',
            ("", "name", "city", "since"),
            [("1", "Holm", 'New "York"', "NA"), ("2", "Berg", "Bonn", "2024-05-01")],
        ),
        ('"x" "y"\n1 TRUE\n-3,5 1e+05\n', ("x", "y"), [("1", "TRUE"), ("-3,5", "1e+05")]),
    ],
)
def test_tables_that_r_writes_with_blanks(
    name: str, text: str, header: tuple[str, ...], rows: list[tuple[str, ...]], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    (table,), said = found(tmp_path / name)
    assert isinstance(table, Table) and (table.header, list(table.rows), table.uri) == (header, rows, name)
    assert all(one.startswith("remark: ") for one in said)


@pytest.mark.parametrize(
    "text",
    [
        "x y\n1 2\n3 4\n",
        '"Hello" he said.\n"Hello" she replied.\n',
        '"To be" "or" "not"\n"to" "be" "that"\n"is" "the" "question"\n',
        '"x" "y"\n1 2\n3\n',
        '"x" "y"\n1 2\n',
    ],
)
def test_texts_with_quotes_are_no_tables(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    (document,), _ = found(tmp_path / "a.txt")
    assert isinstance(document, TextDocument) and document.text == text


PLATE = """User: HOLM,Path: C:\\Data\\,Test ID: 1432
Test: ELISA,Date: 14/03/2025,Time: 10:22

,1,2,3
A,0.043,0.051,1.203
B,0.044,0.049,1.198
"""
PAIRS = """User,HOLM
Test,ELISA

,1,2,3
A,0.043,0.051,1.203
B,0.044,0.049,1.198
C,0.044,0.049,1.198

Wavelength,450 nm
"""


@pytest.mark.parametrize("text", [PLATE, PAIRS])
def test_plates_of_a_laboratory(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    documents, _ = found(tmp_path / "a.csv")
    plate = documents[-1]
    assert isinstance(plate, Table) and plate.header == ("", "1", "2", "3")
    assert (
        plate.rows[0] == ("A", "0.043", "0.051", "1.203")
        and plate.number_of(0) == text.split("\n").index("A,0.043,0.051,1.203") + 1
    )
    assert "ELISA" in (plate.section if text is PAIRS else repr(documents[0]))


def test_questions_of_a_survey(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'StartDate,Q1,Q2\nStart Date,"Are you happy, Kaja?",Why?\n'
        '"{""ImportId"":""startDate""}","{""ImportId"":""QID1""}","{""ImportId"":""QID2""}"\n2025-03-01,Yes,Sun\n'
    )
    (table,), _ = found(tmp_path / "a.csv")
    assert isinstance(table, Table) and table.header == (
        "StartDate Start Date",
        "Q1 Are you happy, Kaja?",
        "Q2 Why?",
    )
    assert list(table.rows) == [("2025-03-01", "Yes", "Sun")] and table.number_of(0) == 4


TASKS = """<h1>Minutes</h1><ul class="inline-task-list"><li class="checked">Paint</li><li>Oil</li></ul>
<ul><li><input type="checkbox" checked disabled> Buy</li><li><input type="checkbox"> Sell</li></ul>
<input type="checkbox" id="nav-toggle"><label for="nav-toggle"></label>
<p><label><input type="radio" checked>Yes</label></p>
<table><tr><th>Item</th><th>Insured</th></tr><tr><td>Boat</td><td><input type="checkbox" checked></td></tr></table>
<div class="expand-content" style="display:none"><p>Opened.</p></div><div style="display:none">gone</div>
<dl><dt>Colour</dt><dd>Red</dd><dt>Weight:</dt><dd>1 kg</dd><dd>2 kg with box</dd>
<dt>Ports</dt><dd><ul><li>USB</li></ul></dd>
<dt>Sizes</dt><dd><table><tr><th>a<th>b<tr><td>1<td>2</table>and more</dd></dl>"""


def test_boxes_and_terms_of_pages(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(TASKS)
    (text, insured, _), _ = found(tmp_path / "a.html")
    assert isinstance(text, TextDocument) and text.text.strip().splitlines() == [
        *("Minutes", "", "- ☒ Paint", "- ☐ Oil", "", "- ☒ Buy", "- ☐ Sell", "", "☒ Yes", "", "Opened.", ""),
        *("Colour: Red", "Weight: 1 kg", "  2 kg with box", "Ports", "  - USB", "Sizes", "", "and more"),
    ]
    assert isinstance(insured, Table) and insured.rows == (("Boat", "☒"),)


SPECS = """<table{kind}><tbody><tr><th colspan=2>Light</th></tr>
<tr><th>Power</th><td>40 W</td></tr><tr><th>Range</th><td>9 km</td></tr>{end}
<tr><{tag} colspan=2>Body</{tag}></tr><tr><th>Height</th><td>31 cm</td></tr></table>"""


@pytest.mark.parametrize(
    ("kind", "tag", "end", "sections"),
    [
        (" class=specs", "th", "", {"Light": 2, "Body": 1}),
        ("", "th", "</tbody><tbody>", {"Light": 2, "Body": 1}),
        ("", "th", "", {"Light": 4}),  # can be a title
        (" class=specs", "td", "", {"Light": 4}),
    ],
)
def test_sections_of_specifications(
    kind: str, tag: str, end: str, sections: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_text(SPECS.format(kind=kind, tag=tag, end=end))
    documents, _ = found(tmp_path / "a.html")
    assert {one.section: len(one.rows) for one in documents if isinstance(one, Table)} == sections
