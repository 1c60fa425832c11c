"""Pages of the site that are made from other files: the command line, the notebook, CONTRIBUTING and CHANGELOG.

Also tooltips: a page shows the meaning of some of the glossary's terms when the pointer is on them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Terms of docs/glossary.md that get a tooltip, also in docstrings. They have no second, everyday meaning.
TIPS = (
    *("batch point", "evidence graph", "evidence item", "evidence package", "fallback", "forward index"),
    *("gold", "graph memory", "guidance", "hop", "journal", "knowledge unit", "late interaction", "ledger"),
    *("matrix of thought", "outage", "pool", "probe", "pruning", "reranker", "snapshot", "subgraph", "trajectory"),
)


def on_config(config: Any) -> Any:
    """Give the extension `abbr` the terms with their meanings. A plural gets the same tooltip."""
    rows = re.findall(r"^\| ([^|`]+) \| ([^|]+) \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.M)
    meanings = {word: meaning.replace("`", "") for word, meaning in rows}
    tips = {form: meanings[word] for word in TIPS for form in (word, f"{word}s")}
    config.mdx_configs["abbr"] = {"glossary": tips}
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that have no file of their own in docs/."""
    from mkdocs.structure.files import File

    pages = {
        "tutorial.md": notebook(ROOT / "docs" / "tutorial.ipynb"),
        "contributing.md": from_root(ROOT / "CONTRIBUTING.md"),
        "changes.md": from_root(ROOT / "CHANGELOG.md"),
        "reference/command-line.md": command_line(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside docs/ become the paths of those files: the site holds no copy of them."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+(examples/[^)]*)\)", r"`\2`", markdown)


def on_post_build(config: Any) -> None:
    """Refuse a site that loads anything from the network; links that a reader may follow can lead anywhere."""
    from mkdocs.exceptions import PluginError

    for path in Path(config.site_dir).rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)", html)
        loaded += re.findall(r"<link\b[^>]*\bhref=\"([^\"]+)", html)
        if foreign := [url for url in loaded if re.match(r"(https?:)?//", url)]:
            raise PluginError(f"{path.name} loads from the network: {foreign[0]}")


def from_root(path: Path) -> str:
    """A page of the repository's root, with its links as seen from docs/."""
    text = path.read_text(encoding="utf-8").replace("](docs/", "](")
    text = re.sub(r"\]\(papers\)", "](papers/n2n.md)", text)
    return re.sub(r"\[([^\]]+)\]\((?!http|#)([^)]*)\)", _page_or_name, text)


def _page_or_name(link: re.Match[str]) -> str:
    page, _, _ = link[2].partition("#")
    return link[0] if (ROOT / "docs" / page).is_file() else f"`{link[2]}`"


def notebook(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join(_printed(cell["outputs"])).rstrip()
        if printed:
            parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts) + "\n"


def _printed(outputs: list[dict[str, Any]]) -> Iterator[str]:
    for output in outputs:
        if output["output_type"] == "stream" and output["name"] == "stdout":
            yield "".join(output["text"])
        elif output["output_type"] == "execute_result":
            yield "".join(output["data"]["text/plain"]) + "\n"


def command_line() -> str:
    """Every command with its arguments and options, from the program itself."""
    import typer

    from pyfast.commands.cli import app

    parts = ["# Command line\n\n*For users of the command `pyfast`.*\n"]
    parts.append("`pyfast COMMAND --help` prints the same text.\n")
    parts += _commands(typer.main.get_command(app), ("pyfast",))
    return "\n".join(parts)


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*words, name))
        return
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    usage = " ".join([*words, *(one.name.upper() + ("..." if one.nargs == -1 else "") for one in arguments)])
    yield f"## {' '.join(words)}\n\n```text\n{usage} [OPTIONS]\n```\n\n{(command.help or '').strip()}\n"
    if arguments or options:
        yield "| name | default | meaning |\n|---|---|---|"
    for one in arguments:
        yield f"| `{one.name.upper()}` | {'' if one.required else 'optional'} | {_cell(one.help)} |"
    for one in options:
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        yield f"| {names} | {_default(one)} | {_cell(one.help)} |"
    yield ""


def _default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    if value in (None, False, "") or callable(value) or option.is_flag:
        return ""
    return f"`{' '.join(map(str, value)) if isinstance(value, (list, tuple)) else value}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
