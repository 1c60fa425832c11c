"""Reads PTX, as far as nvcc writes it for kernels that have everything inlined."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Instruction:
    opcode: tuple[str, ...]
    """The parts between its dots."""
    operands: tuple[str, ...]
    guard: str
    """The predicate it depends on, or ''."""
    negated: bool
    where: str
    """Source line and text, for reports."""


@dataclass(frozen=True)
class Variable:
    name: str
    bytes: int
    alignment: int


@dataclass
class Kernel:
    name: str
    """As C++ writes it."""
    parameters: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    """Name -> PTX type."""
    shared: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    most_threads: int = 1024


class Unsupported(Exception):
    """The PTX has something that this interpreter does not know."""


def parse(text: str) -> list[Kernel]:
    """The kernels of a module.

    Raises:
        Unsupported: it has functions that are called, or variables of the module other than dynamic shared memory.
    """
    files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"[^"]*?([^/"]+)"', text, re.MULTILINE))
    entry = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{;]*)\{(.*?)^\}", re.DOTALL | re.MULTILINE)
    outside = entry.sub("", text)
    if found := re.search(r"^\s*(?:\.visible |\.weak )?\.(?:func|global|const)\b.*", outside, re.MULTILINE):
        raise Unsupported(found[0].strip())
    shared = [
        _variable(found) for found in re.findall(r"^\s*(?:\.extern |\.weak )?\.shared[^;]*", outside, re.MULTILINE)
    ]
    kernels = []
    names = _demangled([found[1] for found in entry.finditer(text)])
    for name, (_, parameters, directives, body) in zip(names, entry.findall(text), strict=True):
        kernel = Kernel(name, shared=[variable for variable in shared if variable.name in body])
        kernel.parameters = [_variable(found) for found in re.findall(r"\.param[^,]*(?:,\s*\d[^,]*)*", parameters)]
        if found := re.search(r"\.maxntid\s+(\d+)", directives):
            kernel.most_threads = int(found[1])
        _read_body(kernel, body, files)
        kernels.append(kernel)
    return kernels


def _demangled(names: list[str]) -> list[str]:
    """Anonymous namespaces, which compilers name as they like, have one name here."""
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def _variable(text: str) -> Variable:
    found = re.search(
        r"(?:\.align\s+(\d+)\s+)?\.[bsuf](\d+)\s+(?:\.ptr[.\w\s]*?)?([\w$]+)\s*(?:\[(\d*)\])?\s*$", text.strip()
    )
    if not found:
        raise Unsupported(text)
    alignment, bits, name, count = found.groups()
    size = SIZES[bits]
    return Variable(name, size * int(count or (0 if count == "" else 1)), int(alignment or size))


DIRECTIVE = re.compile(
    r"\.(?:loc\s+(?P<file>\d+)\s+(?P<line>\d+)\s+\d+"
    r"(?:\s*,\s*function_name[^,]*,\s*inlined_at\s+(?P<caller>\d+)\s+(?P<at>\d+)\s+\d+)?|pragma\s+\S+)\s*"
)


SCOPE = re.compile(r"\{\s*\.reg[^{}]*\}")


def _renamed(scope: re.Match[str]) -> str:
    """A block with registers of its own, by names that the rest of the kernel does not have."""
    own = re.findall(r"\.reg\s+\.\w+\s+(%\w+)\s*;", scope[0])
    return re.sub(r"%\w+", lambda name: f"{name[0]}_at_{scope.start()}" if name[0] in own else name[0], scope[0])


def _read_body(kernel: Kernel, body: str, files: dict[str, str]) -> None:
    place = "?"
    body = SCOPE.sub(_renamed, re.sub(r"//[^\n]*", "", body))
    for statement in re.findall(r"[^;:{}]+:(?!:)|(?:[^;{}]|\{[^{}\n]*\})+;", body):
        text = " ".join(statement.rstrip(";").split())
        # Directives without a semicolon come before what has one.
        while found := DIRECTIVE.match(text):
            if found["file"]:
                place = f"{files.get(found['file'], '?')}:{found['line']}"
                if found["caller"]:
                    place += f" in {files.get(found['caller'], '?')}:{found['at']}"
            text = text[found.end() :]
        if text.endswith(":"):
            kernel.labels[text[:-1].strip()] = len(kernel.instructions)
        elif text.startswith(".reg"):
            kind, names = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text).groups()  # type: ignore[union-attr]
            for one in names.split(","):
                name, count = re.fullmatch(r"\s*(%[\w$]+)(?:<(\d+)>)?\s*", one).groups()  # type: ignore[union-attr]
                every = [f"{name}{i}" for i in range(int(count))] if count else [name]
                kernel.registers.update(dict.fromkeys(every, kind))
        elif text.startswith(".shared"):
            kernel.shared.append(_variable(text))
        elif text.startswith("."):
            if not text.startswith(".pragma"):
                raise Unsupported(text)
        elif text:
            kernel.instructions.append(_instruction(text, place))


def _instruction(text: str, place: str) -> Instruction:
    found = re.fullmatch(r"(?:@(!?)(%[\w$]+)\s+)?([\w.:]+)\s*(.*)", text)
    if not found:
        raise Unsupported(text)
    negated, guard, opcode, operands = found.groups()
    parts = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,\s])+", operands)
    return Instruction(
        tuple(opcode.replace("::", ".").split(".")), tuple(parts), guard or "", bool(negated), f"{place}: {text}"
    )
