"""The files of the report's page: HTML, script and style. The HTML has a Content-Security-Policy."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

STATIC = files("pyfast.reports") / "static"
SCRIPTS = (
    *(
        "dom",
        "data",
        "charts",
        "overview",
        "questions",
        "path",
        "graph",
        "pictures",
        "question",
        "compare",
        "main",
    ),
)
"""The files that make up app.js, in their order"""
VENDOR = ("cytoscape.min.js", "d3.min.js", "plot.umd.min.js")
LICENCES = ("cytoscape.LICENSE", "d3.LICENSE", "plot.LICENSE")
# Digests of the styles that Plot and Cytoscape add to the page, in the versions of `vendor`; a browser names those
# that it refuses.
STYLES = (
    "'sha256-+TfQir1nvDucAdvE6XUQBt4ayUjpAWkbw2kCdSfekHM='",
    "'sha256-vnLCBQhI2E03zAY/Mp8RxBhuZSloT7+cclqIlG2t6/M='",
    "'sha256-pgvDUBa4IjFA2yuSJ2cqcyxmNYJMborsd0ORcRv9vw8='",
)
_GENERATOR = '<meta name="generator" content="pyfast">'
FROM_DISK = (
    "A browser loads no data from the disk. Open this report with: pyfast view RUN, or from any web server."
)


def write_page(out: Path, title: str) -> None:
    """Write index.html, app.js, style.css and the libraries into a folder."""
    (out / "vendor").mkdir(parents=True, exist_ok=True)
    for name in (*VENDOR, *LICENCES):
        (out / "vendor" / name).write_bytes((STATIC / "vendor" / name).read_bytes())
    (out / "app.js").write_text(script(), encoding="utf-8")
    (out / "style.css").write_text(style(), encoding="utf-8")
    policy = _policy("script-src 'self'", "style-src 'self'", "connect-src 'self'")
    head = '<link rel="stylesheet" href="style.css">\n<script src="app.js" defer></script>'
    (out / "index.html").write_text(_html(title, policy, head, FROM_DISK), encoding="utf-8")


def single_page(title: str, details: dict[str, Any]) -> str:
    """Return the HTML of a page with one question. If you save it as a file, a browser can open this file from
    the disk. `details` come from `details_of`.
    """
    parts = ((STATIC / "vendor" / VENDOR[0]).read_text(encoding="utf-8"), script())
    scripts = [part.replace("</script", "<\\/script").replace("<!--", "<\\!--") for part in parts]
    allowed = " ".join(_digest(part) for part in scripts)
    sheet = style()
    policy = _policy(f"script-src {allowed}", f"style-src {_digest(sheet)}", "connect-src 'none'")
    data = orjson.dumps(details).decode().replace("<", "\\u003c")
    head = f'<style>{sheet}</style>\n<script type="application/json" id="question">{data}</script>\n'
    tail = "\n".join(f"<script>{part}</script>" for part in scripts)
    return _html(title, policy, head, "This page needs JavaScript.", tail)


def is_single_page(path: Path) -> bool:
    """Return whether a file is a page that `single_page` wrote."""
    with path.open("rb") as file:
        return _GENERATOR.encode() in file.read(1 << 12)


def script() -> str:
    """Return the text of app.js, joined from its parts."""
    parts = [(STATIC / "app" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def style() -> str:
    """Return the text of the style sheet."""
    return (STATIC / "style.css").read_text(encoding="utf-8")


def _policy(*sources: str) -> str:
    allowed = " ".join(STYLES)
    given = [f"{one} {allowed}".strip() if one.startswith("style-src") else one for one in sources]
    return "; ".join(("default-src 'none'", *given, "img-src data:", "base-uri 'none'", "form-action 'none'"))


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _html(title: str, policy: str, head: str, message: str, tail: str = "") -> str:
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
{_GENERATOR}
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
{head}
</head>
<body>
<main id="app" tabindex="-1"><p>{escape(message)}</p></main>
{tail}
</body>
</html>
"""
