"""What the lanes of a warp do together: shuffles, votes, reductions, __syncwarp.

Each function gets the threads that are at the instruction, of which whole warps' masks are complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ptx import arithmetic
from ptx.faults import Fault
from ptx.operands import TYPES, Array, Threads, elements, source, target
from ptx.parsing import Instruction, Unsupported

Meeting = Callable[[Array], None]
LANE = np.uint32(31)


def mask_operand(instruction: Instruction) -> str:
    """The operand that names the lanes; '' where it is no meeting of lanes."""
    if instruction.opcode[0] in ("shfl", "vote", "redux", "match"):
        return instruction.operands[-1]
    if instruction.opcode[0] == "mma":
        return "0xFFFFFFFF"
    return instruction.operands[0] if instruction.opcode[:2] == ("bar", "warp") else ""


def meeting(threads: Threads, instruction: Instruction) -> Meeting:
    return {"shfl": _shuffle, "vote": _vote, "redux": _reduce, "bar": _synchronise, "mma": _multiply}.get(
        instruction.opcode[0], _unknown
    )(threads, instruction)


def _unknown(threads: Threads, instruction: Instruction) -> Meeting:
    raise Unsupported(instruction.where)


def _synchronise(threads: Threads, instruction: Instruction) -> Meeting:
    def meet(act: Array) -> None:
        warps = act // 32
        latest = np.zeros(threads.count // 32 + 1, np.int64)
        np.maximum.at(latest, warps, threads.epochs[act])
        threads.epochs[act] = latest[warps] + 1

    return meet


def _shuffle(threads: Threads, instruction: Instruction) -> Meeting:
    """As the PTX manual defines it: c holds the segment's mask and the clamp."""
    word, mode = TYPES["u32"], instruction.opcode[2]
    value, b, c, mask = (source(threads, operand, word) for operand in instruction.operands[1:])
    to, *inside = instruction.operands[0].split("|")
    write = target(threads, to, word)
    tell = target(threads, inside[0], TYPES["pred"]) if inside else lambda act, values: None

    def meet(act: Array) -> None:
        lane = (act % 32).astype(np.int64)
        by, limits = b(act).astype(np.int64), c(act).astype(np.int64)
        segment, clamp = limits >> 8 & 31, limits & 31
        highest, lowest = (lane & segment) | (clamp & ~segment), lane & segment
        other = {
            "up": lane - by,
            "down": lane + by,
            "bfly": lane ^ by,
            "idx": lowest | (by & 31 & ~segment),
        }[mode]
        held = other >= highest if mode == "up" else other <= highest
        other = np.where(held, other, lane)
        named = mask(act).astype(np.int64) >> other & 1 == 1
        values = np.zeros(threads.count, np.uint32)
        here = np.zeros(threads.count, bool)
        values[act], here[act] = value(act), True
        source_thread = act // 32 * 32 + other
        if not named.all() or not here[np.minimum(source_thread, threads.count - 1)].all():
            raise Fault(f"shuffle from a lane that does not take part: {instruction.where}")
        write(act, values[source_thread])
        tell(act, held)

    return meet


def _by_mask(act: Array, masks: Array, function: Callable[[Array], Any]) -> list[tuple[Array, Any]]:
    """For each warp and mask: the places in `act` of its lanes, and what the function makes of those."""
    keys = (act // 32).astype(np.int64) << 32 | masks.astype(np.int64)
    groups = [np.flatnonzero(keys == key) for key in np.unique(keys)]
    return [(places, function(places)) for places in groups]


def _vote(threads: Threads, instruction: Instruction) -> Meeting:
    kind = instruction.opcode[2]
    predicate = source(threads, instruction.operands[1], TYPES["pred"])
    mask = source(threads, instruction.operands[2], TYPES["u32"])
    write = target(threads, instruction.operands[0], TYPES["u32" if kind == "ballot" else "pred"])

    def meet(act: Array) -> None:
        held, lane = predicate(act), act % 32
        result = np.zeros(len(act), np.uint32 if kind == "ballot" else bool)

        def outcome(places: Array) -> Any:
            if kind == "ballot":
                return np.sum(held[places].astype(np.uint32) << lane[places].astype(np.uint32), dtype=np.uint32)
            if kind == "uni":
                return held[places].all() or not held[places].any()
            return held[places].all() if kind == "all" else held[places].any()

        for places, value in _by_mask(act, mask(act), outcome):
            result[places] = value
        write(act, result)

    return meet


PRODUCTS = {
    ("sync", "aligned", "m16n8k32", "row", "col", "s32", "s8", "s8", "s32"): ("s32", arithmetic.four_codes),
    ("sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"): ("f32", arithmetic.two_bfloat16),
}


def _multiply(threads: Threads, instruction: Instruction) -> Meeting:
    """mma: a 16 x k matrix times a k x 8 matrix. Sums are exact, and rounded once."""
    if instruction.opcode[1:] not in PRODUCTS:
        raise Unsupported(instruction.where)
    kind, unpack = PRODUCTS[instruction.opcode[1:]]
    first, second = (
        [source(threads, operand, TYPES["u32"]) for operand in elements(operands)]
        for operands in instruction.operands[1:3]
    )
    sums = [source(threads, operand, TYPES[kind]) for operand in elements(instruction.operands[3])]
    writes = [target(threads, operand, TYPES[kind]) for operand in elements(instruction.operands[0])]

    def meet(act: Array) -> None:
        if len(act) % 32:
            raise Fault(f"a lane misses a product of matrices: {instruction.where}")
        # [warp, lane / 4, lane % 4, number], of each register
        a, b = (
            [unpack(register(act)).reshape(-1, 8, 4, unpack(register(act)).shape[1]) for register in registers]
            for registers in (first, second)
        )
        for place, (read, write) in enumerate(zip(sums, writes, strict=True)):
            low, high = a[place // 2], a[place // 2 + 2]
            columns = [each[:, place % 2 :: 2] for each in b]
            products = sum(
                np.einsum("wrln,wcln->wrc", rows, held) for rows, held in zip((low, high), columns, strict=True)
            )
            write(act, (read(act) + products.reshape(-1)).astype(TYPES[kind]))

    return meet


def _reduce(threads: Threads, instruction: Instruction) -> Meeting:
    dtype = TYPES[instruction.opcode[-1]]
    function: Any = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[instruction.opcode[2]]
    value, mask = (
        source(threads, instruction.operands[1], dtype),
        source(threads, instruction.operands[2], TYPES["u32"]),
    )
    write = target(threads, instruction.operands[0], dtype)

    def meet(act: Array) -> None:
        values = value(act)
        result = np.zeros(len(act), dtype)
        for places, reduced in _by_mask(
            act, mask(act), lambda places: function.reduce(values[places], dtype=dtype)
        ):
            result[places] = reduced
        write(act, result)

    return meet


def complete(threads: Threads, act: Array, masks: Array, alive: Array, where: str) -> Array:
    """Which of `act` have all lanes of their mask beside them; lanes that have ended are not waited for."""
    if not (masks.astype(np.int64) >> act % 32 & 1).all():
        raise Fault(f"a lane is not in its own mask: {where}")
    whole = np.zeros(len(act), bool)

    def all_here(places: Array) -> bool:
        first = int(act[places[0]]) // 32 * 32
        warp = np.arange(first, min(first + 32, threads.count))
        living = warp[alive[warp] & (int(masks[places[0]]) >> (warp - first) & 1 == 1)]
        return len(living) == len(places)

    for places, here in _by_mask(act, masks, all_here):
        whole[places] = here
    return whole
