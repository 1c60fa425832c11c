"""Loads, stores and atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ptx.faults import Fault
from ptx.instructions import Step
from ptx.memory import Generic, Space
from ptx.operands import TYPES, Act, Array, Threads, address, elements, source, target
from ptx.parsing import Instruction, Unsupported


def _space(threads: Threads, instruction: Instruction) -> Space | Generic:
    names = [part for part in instruction.opcode if part in ("global", "shared", "param", "local", "const")]
    name = names[0] if names else "generic"
    if name not in threads.spaces:
        raise Unsupported(instruction.where)
    return threads.spaces[name]


def load(threads: Threads, instruction: Instruction) -> Step:
    dtype = TYPES[instruction.opcode[-1]]
    space, where = _space(threads, instruction), instruction.where
    into = elements(instruction.operands[0])
    writes = [target(threads, operand, dtype) for operand in into]
    at = address(threads, instruction.operands[1])
    constant = "nc" in instruction.opcode

    def step(act: Act) -> None:
        first = _aligned(at(act), dtype.itemsize * len(into), where)
        who = threads.who(act)
        values = [
            space.load(first + place * dtype.itemsize, dtype, who, where, constant) for place in range(len(into))
        ]
        for write, value in zip(writes, values, strict=True):
            write(act, value)

    return step


def store(threads: Threads, instruction: Instruction) -> Step:
    dtype, where = TYPES[instruction.opcode[-1]], instruction.where
    space, at = _space(threads, instruction), address(threads, instruction.operands[0])
    reads = [source(threads, operand, dtype) for operand in elements(instruction.operands[1])]

    def step(act: Act) -> None:
        first = _aligned(at(act), dtype.itemsize * len(reads), where)
        who = threads.who(act)
        for place, read in enumerate(reads):
            space.store(first + place * dtype.itemsize, read(act), who, where)

    return step


def _aligned(addresses: Array, size: int, where: str) -> Array:
    if (addresses % size).any():
        raise Fault(f"misaligned access: {where}")
    return addresses


CHANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda before, a, _: before + a,
    "min": lambda before, a, _: min(before, a),
    "max": lambda before, a, _: max(before, a),
    "and": lambda before, a, _: before & a,
    "or": lambda before, a, _: before | a,
    "xor": lambda before, a, _: before ^ a,
    "exch": lambda before, a, _: a,
    "cas": lambda before, a, b: b if before == a else before,
}


def atomic(threads: Threads, instruction: Instruction) -> Step:
    """atom, which gives the value before, and red, which does not."""
    gives = instruction.opcode[0] == "atom"
    dtype, where = TYPES[instruction.opcode[-1]], instruction.where
    place, *values = instruction.operands[1:] if gives else instruction.operands
    space, at = _space(threads, instruction), address(threads, place)
    reads = [source(threads, operand, dtype) for operand in values]
    write = target(threads, instruction.operands[0] if gives else "_", dtype)
    found = [CHANGES[part] for part in instruction.opcode[1:] if part in CHANGES]
    if len(found) != 1:
        raise Unsupported(where)

    def step(act: Act) -> None:
        brought = [read(act) for read in reads]
        a, b = brought[0], brought[-1]
        before = space.update(
            _aligned(at(act), dtype.itemsize, where),
            dtype,
            threads.who(act),
            where,
            lambda i, held: found[0](held, a[i], b[i]),
        )
        write(act, before)

    return step


def copy(threads: Threads, instruction: Instruction) -> Step:
    """cp.async. What it writes is not to be read before its thread has waited for it."""
    where = instruction.where
    if "commit_group" in instruction.opcode:

        def commit(act: Act) -> None:
            threads.committed[act] += 1

        return commit
    if "wait_group" in instruction.opcode:
        last = int(instruction.operands[0])
        return lambda act: _finish_copies(threads, act, last, where)
    if instruction.opcode[1:] != ("async", "cg", "shared", "global"):
        raise Unsupported(where)
    into, of = (address(threads, operand) for operand in instruction.operands[:2])
    size = int(instruction.operands[2])
    held = source(threads, instruction.operands[3], TYPES["u32"])

    def begin(act: Act) -> None:
        who, to, start = threads.who(act), _aligned(into(act), size, where), _aligned(of(act), size, where)
        values = np.zeros((len(who), size // 4), np.uint32)
        for place in range(size // 4):
            there = 4 * place < held(act)
            values[there, place] = threads.spaces["global"].load(
                start[there] + 4 * place, values.dtype, who[there], where
            )
            threads.shared.store(to + 4 * place, values[:, place], who, where)
        threads.shared.unwrite(to, size, where)
        threads.copies.append((threads.numbers[act], threads.committed[act].copy(), to, values))

    return begin


def _finish_copies(threads: Threads, act: Act, last: int, where: str) -> None:
    """Makes the copies of these threads, but for those of their last groups."""
    left = []
    for numbers, groups, to, values in threads.copies:
        due = np.isin(numbers, threads.numbers[act]) & (groups < threads.committed[numbers] - last)
        for place in range(values.shape[1] if due.any() else 0):
            threads.shared.store(to[due] + 4 * place, values[due, place], threads.who(numbers[due]), where)
        if not due.all():
            left.append((numbers[~due], groups[~due], to[~due], values[~due]))
    threads.copies[:] = left


BUILDERS: dict[str, Callable[[Threads, Instruction], Step]] = {
    "cp": copy,
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
}
