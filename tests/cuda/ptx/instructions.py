"""Makes of each instruction a function that does it, for the threads that it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ptx import arithmetic
from ptx.memory import Array
from ptx.operands import TYPES, Act, Threads, elements, source, target
from ptx.parsing import Instruction, Unsupported

Step = Callable[[Act], None]


def translate(threads: Threads, instruction: Instruction) -> Step:
    """Of an instruction that depends on nothing but its threads' registers."""
    name = instruction.opcode[0]
    if name in UNARY:
        return _unary(threads, instruction)
    if name in BINARY:
        return _binary(threads, instruction)
    if name not in BUILDERS:
        raise Unsupported(instruction.where)
    return BUILDERS[name](threads, instruction)


def _type(instruction: Instruction) -> Any:
    return TYPES[instruction.opcode[-1]]


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


def _shaped(instruction: Instruction, values: Array) -> Array:
    """As .ftz and .sat have the result."""
    if "ftz" in instruction.opcode:
        values = _flushed(values)
    if "sat" in instruction.opcode:
        values = np.where(np.isnan(values), 0, np.clip(values, 0, 1)).astype(values.dtype)
    return values


def _in_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
    "popc": arithmetic.bits_set,
    "clz": lambda x: (x.dtype.itemsize * 8 - arithmetic.highest_bit(x)).astype(np.uint32),
    "brev": arithmetic.reversed_bits,
    "sqrt": _in_double(np.sqrt),
    "rsqrt": _in_double(lambda x: 1 / np.sqrt(x)),
    "rcp": _in_double(lambda x: 1 / x),
    "ex2": _in_double(np.exp2),
    "lg2": _in_double(np.log2),
}


def _unary(threads: Threads, instruction: Instruction) -> Step:
    function, dtype = UNARY[instruction.opcode[0]], _type(instruction)
    read = source(threads, instruction.operands[1], dtype)
    counts = instruction.opcode[0] in ("popc", "clz")
    write = target(threads, instruction.operands[0], np.dtype("u4") if counts else dtype)
    flush = "ftz" in instruction.opcode

    def step(act: Act) -> None:
        x = read(act)
        write(act, _shaped(instruction, function(_flushed(x) if flush else x)))

    return step


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.fmin,
    "max": np.fmax,
    "div": lambda a, b: a / b if a.dtype.kind == "f" else arithmetic.divide(a, b),
    "rem": lambda a, b: a - b * arithmetic.divide(a, b),
    "copysign": lambda a, b: np.copysign(b, a),
}


def _binary(threads: Threads, instruction: Instruction) -> Step:
    name, dtype = instruction.opcode[0], _type(instruction)
    if dtype.kind == "f" and set(instruction.opcode) & {"rz", "rm", "rp", "NaN"}:
        raise Unsupported(instruction.where)
    function = BINARY[name]
    first, second = (source(threads, operand, dtype) for operand in instruction.operands[1:])
    write = target(threads, instruction.operands[0], dtype)

    def step(act: Act) -> None:
        write(act, _shaped(instruction, function(first(act), second(act))))

    return step


def _multiply(threads: Threads, instruction: Instruction) -> Step:
    """mul, mad, fma."""
    name, dtype = instruction.opcode[0], _type(instruction)
    wide = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}") if "wide" in instruction.opcode else dtype
    first, second = (source(threads, operand, dtype) for operand in instruction.operands[1:3])
    third = source(threads, instruction.operands[3], wide) if name != "mul" else None
    write = target(threads, instruction.operands[0], wide)
    mode = next((part for part in instruction.opcode if part in ("rz", "rm", "rp")), "rn")
    if mode != "rn" and (name != "fma" or dtype.itemsize != 4):
        raise Unsupported(instruction.where)

    def step(act: Act) -> None:
        a, b = first(act), second(act)
        if dtype.kind == "f":
            result = a * b if third is None else arithmetic.fma(a, b, third(act), mode)
            write(act, _shaped(instruction, result))
            return
        high = "hi" in instruction.opcode
        product = arithmetic.high_product(a, b) if high else a.astype(wide) * b.astype(wide)
        write(act, product if third is None else product + third(act))

    return step


def _move(threads: Threads, instruction: Instruction) -> Step:
    """mov and cvta; registers packed into a wider one, and out of it."""
    dtype = _type(instruction)
    into, of = (elements(operand) for operand in instruction.operands)
    if len(into) == len(of) == 1:
        read, write = source(threads, of[0], dtype), target(threads, into[0], dtype)
        return lambda act: write(act, read(act))
    part = np.dtype(f"u{dtype.itemsize // max(len(into), len(of))}")
    if len(of) > 1:
        whole = target(threads, into[0], dtype)
        parts = [source(threads, operand, part) for operand in of]

        def pack(act: Act) -> None:
            values = np.stack([read(act) for read in parts], axis=1)
            whole(act, np.ascontiguousarray(values).view(dtype)[:, 0])

        return pack
    read = source(threads, of[0], dtype)
    writes = [target(threads, operand, part) for operand in into]

    def unpack(act: Act) -> None:
        values = np.ascontiguousarray(read(act)).view(part).reshape(-1, len(writes))
        for place, write in enumerate(writes):
            write(act, values[:, place])

    return unpack


def _convert(threads: Threads, instruction: Instruction) -> Step:
    *_, to_name, from_name = instruction.opcode
    if instruction.opcode == ("cvt", "rn", "bf16x2", "f32"):
        return _round_two(threads, instruction)
    if to_name not in TYPES or from_name not in TYPES:
        raise Unsupported(instruction.where)
    to, of = TYPES[to_name], TYPES[from_name]
    read, write = source(threads, instruction.operands[1], of), target(threads, instruction.operands[0], to)
    mode = next(
        (part for part in instruction.opcode if part in ("rzi", "rni", "rmi", "rpi", "rz", "rm", "rp")), "rn"
    )
    if (to.kind != "f" and "sat" in instruction.opcode) or (mode in ("rz", "rm", "rp") and of.itemsize != 8):
        raise Unsupported(instruction.where)

    def step(act: Act) -> None:
        x = read(act)
        if of.kind == "f" and to.kind != "f":
            write(act, arithmetic.to_integer(x, to, mode))
        elif of.kind == "f":
            y = arithmetic.integral(x, mode) if mode.endswith("i") else x
            narrowed = arithmetic.rounded(y, mode) if mode in ("rz", "rm", "rp") else y.astype(to)
            write(act, _shaped(instruction, narrowed))
        else:
            write(act, x.astype(to))

    return step


def _round_two(threads: Threads, instruction: Instruction) -> Step:
    """Two numbers to bfloat16, the first into the upper half."""
    high, low = (source(threads, operand, TYPES["f32"]) for operand in instruction.operands[1:])
    write = target(threads, instruction.operands[0], TYPES["b32"])

    def step(act: Act) -> None:
        upper, lower = (arithmetic.to_bfloat16(read(act)) for read in (high, low))
        write(act, upper << np.uint32(16) | lower)

    return step


UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
LOGIC: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def _compare(name: str, kind: str, a: Array, b: Array) -> Array:
    if kind != "f":
        return ORDERED[UNSIGNED.get(name, name)](a, b)
    unordered = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return unordered if name == "nan" else ~unordered
    if name in ORDERED:
        return ORDERED[name](a, b) & ~unordered
    return ORDERED[name[:-1]](a, b) | unordered  # equ, neu, ltu, ...


def _set_predicate(threads: Threads, instruction: Instruction) -> Step:
    dtype, name = _type(instruction), instruction.opcode[1]
    first, second = (source(threads, operand, dtype) for operand in instruction.operands[1:3])
    writes = [target(threads, operand, TYPES["pred"]) for operand in instruction.operands[0].split("|")]
    logic = next((LOGIC[part] for part in instruction.opcode[2:] if part in LOGIC), None)
    third = source(threads, instruction.operands[3], TYPES["pred"]) if logic is not None else None

    def step(act: Act) -> None:
        holds = _compare(name, dtype.kind, first(act), second(act))
        for write, value in zip(writes, (holds, ~holds), strict=False):
            write(act, logic(value, third(act)) if logic is not None and third is not None else value)

    return step


def _select(threads: Threads, instruction: Instruction) -> Step:
    dtype = _type(instruction)
    first, second = (source(threads, operand, dtype) for operand in instruction.operands[1:3])
    chosen = source(threads, instruction.operands[3], TYPES["pred"])
    write = target(threads, instruction.operands[0], dtype)
    return lambda act: write(act, np.where(chosen(act), first(act), second(act)))


def _shift(threads: Threads, instruction: Instruction) -> Step:
    dtype = _type(instruction)
    shifted = arithmetic.shifted_left if instruction.opcode[0] == "shl" else arithmetic.shifted_right
    read, by = (
        source(threads, instruction.operands[1], dtype),
        source(threads, instruction.operands[2], TYPES["u32"]),
    )
    write = target(threads, instruction.operands[0], dtype)
    return lambda act: write(act, shifted(read(act), by(act)))


def _funnel(threads: Threads, instruction: Instruction) -> Step:
    """shf: the upper (left) or lower (right) half of two registers, shifted."""
    word = TYPES["u32"]
    low, high, by = (source(threads, operand, word) for operand in instruction.operands[1:])
    write = target(threads, instruction.operands[0], word)
    left, wraps = "l" in instruction.opcode, "wrap" in instruction.opcode

    def step(act: Act) -> None:
        both = low(act).astype(np.uint64) | high(act).astype(np.uint64) << np.uint64(32)
        n = by(act) & np.uint32(31) if wraps else np.minimum(by(act), np.uint32(32))
        n = n.astype(np.uint64)
        write(act, (both << n >> np.uint64(32) if left else both >> n).astype(np.uint32))

    return step


def _look_up(threads: Threads, instruction: Instruction) -> Step:
    dtype, table = _type(instruction), int(instruction.operands[4], 0)
    reads = [source(threads, operand, dtype) for operand in instruction.operands[1:4]]
    write = target(threads, instruction.operands[0], dtype)
    return lambda act: write(act, arithmetic.looked_up(*(read(act) for read in reads), table))


def _permute(threads: Threads, instruction: Instruction) -> Step:
    reads = [source(threads, operand, TYPES["u32"]) for operand in instruction.operands[1:4]]
    write = target(threads, instruction.operands[0], TYPES["u32"])
    return lambda act: write(act, arithmetic.permuted(*(read(act) for read in reads)))


def _add_products(threads: Threads, instruction: Instruction) -> Step:
    """dp4a, of signed bytes: the products of four pairs, added to the third operand."""
    if tuple(instruction.opcode[1:]) != ("s32", "s32"):
        raise Unsupported(instruction.where)
    a, b, c = (source(threads, operand, TYPES["s32"]) for operand in instruction.operands[1:4])
    write = target(threads, instruction.operands[0], TYPES["s32"])
    return lambda act: write(act, arithmetic.products_added(a(act), b(act), c(act)))


def _extract(threads: Threads, instruction: Instruction) -> Step:
    """bfe, of unsigned numbers: `length` bits from `first`."""
    dtype = _type(instruction)
    if dtype.kind != "u":
        raise Unsupported(instruction.where)
    read = source(threads, instruction.operands[1], dtype)
    first, length = (source(threads, operand, TYPES["u32"]) for operand in instruction.operands[2:4])
    write = target(threads, instruction.operands[0], dtype)

    def step(act: Act) -> None:
        mask = ~arithmetic.shifted_left(np.full_like(read(act), np.iinfo(dtype).max), length(act) & np.uint32(255))
        write(act, arithmetic.shifted_right(read(act), first(act) & np.uint32(255)) & mask)

    return step


def _insert(threads: Threads, instruction: Instruction) -> Step:
    """bfi: the lowest `length` bits of the first number, in the place of those of the second from `first` on."""
    dtype, word = _type(instruction), TYPES["u32"]
    of, into = (source(threads, operand, dtype) for operand in instruction.operands[1:3])
    first, length = (source(threads, operand, word) for operand in instruction.operands[3:5])
    write = target(threads, instruction.operands[0], dtype)

    def step(act: Act) -> None:
        low = ~arithmetic.shifted_left(np.full_like(of(act), np.iinfo(dtype).max), length(act) & np.uint32(255))
        place = first(act) & np.uint32(255)
        mask = arithmetic.shifted_left(low, place)
        write(act, (into(act) & ~mask) | (arithmetic.shifted_left(of(act), place) & mask))

    return step


def _find_bit(threads: Threads, instruction: Instruction) -> Step:
    """bfind, of unsigned numbers: the place of the highest bit, or how far it is from the top; of 0 all bits."""
    dtype = _type(instruction)
    if dtype.kind != "u":
        raise Unsupported(instruction.where)
    read = source(threads, instruction.operands[1], dtype)
    write = target(threads, instruction.operands[0], TYPES["u32"])
    top = dtype.itemsize * 8 - 1 if "shiftamt" in instruction.opcode else 0

    def step(act: Act) -> None:
        place = arithmetic.highest_bit(read(act)) - 1
        write(act, np.where(place < 0, -1, np.abs(top - place)).astype(np.uint32))

    return step


def _nothing(threads: Threads, instruction: Instruction) -> Step:
    return lambda act: None


BUILDERS: dict[str, Callable[[Threads, Instruction], Step]] = {
    "bfe": _extract,
    "bfi": _insert,
    "bfind": _find_bit,
    "cvt": _convert,
    "cvta": _move,
    "dp4a": _add_products,
    "fma": _multiply,
    "lop3": _look_up,
    "mad": _multiply,
    "mov": _move,
    "mul": _multiply,
    "prmt": _permute,
    "selp": _select,
    "setp": _set_predicate,
    "shf": _funnel,
    "shl": _shift,
    "shr": _shift,
    # Within a block the barriers order memory, and between blocks of a launch nothing should have to.
    "fence": _nothing,
    "membar": _nothing,
}
