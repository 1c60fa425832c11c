"""Record the picture of a terminal at the top of README.md: what the commands print, with the embedded model.

python docs/record.py        # writes docs/images/terminal.svg
"""

import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "In which year was the moon on which the probe Huygens landed discovered?"
COMMANDS = {
    "pyfast index corpus --out IDX": 1,
    f'pyfast ask IDX \\\n    "{QUESTION}"': 11,
    "pyfast answer questions.jsonl --index IDX --run RUN": 1,
    "pyfast evaluate RUN --figure em --figure evidence_recall": 5,
    "pyfast export RUN --out ANSWERS.xlsx --sources": 1,
}
"""How many lines of the output are shown, by command"""
WIDTH = 82
"""Few columns, so that the letters can be read on a phone"""


def main() -> None:
    """Carry out the commands, and draw what they print."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    with TemporaryDirectory() as place:
        shutil.copytree(ROOT / "examples" / "corpus", Path(place, "corpus"))
        shutil.copy(ROOT / "examples" / "questions.jsonl", place)
        pyfast = Path(place, "pyfast")
        pyfast.write_text(f'#!/bin/sh\nexec {sys.executable} -m pyfast "$@"\n')
        pyfast.chmod(0o755)
        path = f"{place}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT)}
        for command, most in COMMANDS.items():
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            printed = subprocess.run(
                command, shell=True, cwd=place, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            lines = printed.strip("\n").split("\n")
            for line in [*lines[:most], *["   ..."] * (len(lines) > most and command.startswith("pyfast ask"))]:
                # A row of a table is shown whole. A passage is cut, and so is the time that a busy machine took.
                whole = line.startswith("   ") and len(line) < 2 * WIDTH
                console.print(Text.from_ansi(line), overflow="ellipsis", no_wrap=not whole)
            console.print()
    picture = console.export_svg(title="", theme=MONOKAI, clear=False)
    # No font from the network: each line is stretched to its width, whatever font is there.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    (ROOT / "docs" / "images" / "terminal.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
