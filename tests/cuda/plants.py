"""Faults to plant in copies of kernels: each must be found by both ways to execute them.

Each says which build of the emulator finds it. `plain` sees threads that do not meet, and what two orders of
threads or two kinds of poison make of a result; `address` what leaves its array; `thread` accesses that nothing
orders.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from builds import HERE, KERNELS

CONTROLS = HERE / "driver" / "controls.cu"


@dataclass(frozen=True)
class Plant:
    name: str
    source: Path
    """What is compiled."""
    old: str
    new: str
    build: str
    problem: str
    """What shows it: one of the problems of test_plants.py."""
    header: Path | None = None
    """Where the fault goes, if not into the source itself."""
    silent: bool = False
    """Nothing is wrong with it: what looks like a fault and is none."""
    interpreted: bool = True
    """Whether the interpreter looks for it too: a wrong line is as wrong there, and takes time."""


def _control(name: str, problem: str, build: str, old: str, new: str, silent: bool = False) -> Plant:
    return Plant(name, CONTROLS, old, new, build, problem, silent=silent)


def _kernel(name: str, source: str, problem: str, build: str, old: str, new: str, header: str = "") -> Plant:
    return Plant(name, KERNELS / source, old, new, build, problem, KERNELS / header if header else None)


def _line(name: str, source: str, problem: str, old: str, new: str, header: str = "") -> Plant:
    """A line that computes something else: the plain build finds a wrong result."""
    return replace(_kernel(name, source, problem, "plain", old, new, header), interpreted=False)


OF_CONTROLS = [
    _control(
        "missing barrier before shared memory is read",
        *("sum", "thread"),
        "    __syncthreads();\n    if (thread < lanes) {",
        "    if (thread < lanes) {",
    ),
    _control(
        "missing barrier between atomics and reads",
        *("count", "thread"),
        "        atomicAdd(&held[numbers[i]], 1);\n    }\n    __syncthreads();",
        "        atomicAdd(&held[numbers[i]], 1);\n    }",
    ),
    _control(
        "update of global memory by several blocks, not atomic",
        "sum",
        "thread",
        "atomicAdd(total, sum)",
        "*total += sum",
    ),
    _control(
        "update of shared memory, not atomic",
        "count",
        "thread",
        "atomicAdd(&held[numbers[i]], 1)",
        "held[numbers[i]] += 1",
    ),
    _control(
        "read behind global memory",
        *("sum", "address"),
        "block_size + thread; i < n;\n",
        "block_size + thread; i <= n;\n",
    ),
    _control("write behind global memory", "keep", "address", "*found = before", "found[1] = before"),
    _control(
        "read behind static shared memory", "sum", "address", "thread < warps ? parts", "thread <= warps ? parts"
    ),
    _control(
        "write before static shared memory",
        "pass",
        "address",
        "hand[thread] = from[at]",
        "hand[thread - 1] = from[at]",
    ),
    _control(
        "write behind dynamic shared memory",
        *("count", "address"),
        "v < values; v += block_size) {\n        held[v] = 0",
        "v <= values; v += block_size) {\n        held[v] = 0",
    ),
    _control(
        "misaligned read",
        *("pass", "address"),
        "hand[thread] = from[at]",
        "hand[thread] = static_cast<int>(*reinterpret_cast<const long long*>(from + (at < 2 ? 1 : 0)) >> 32)",
    ),
    _control(
        "barrier that half of the block does not reach",
        *("sum", "plain"),
        "    __syncthreads();\n    if (thread < lanes) {",
        "    if (thread < block_size / 2) {\n        __syncthreads();\n    }\n    if (thread < lanes) {",
    ),
    _control(
        "two barriers in place of one, on either side of a branch",
        *("sum", "plain"),
        "    __syncthreads();\n    if (thread < lanes) {",
        "    if (thread < block_size / 2) {\n        __syncthreads();\n        sum += 1;\n    } else {\n"
        "        __syncthreads();\n    }\n    if (thread < lanes) {",
    ),
    _control(
        "threads that leave before a barrier",
        *("sum", "plain"),
        "    sum = warp_sum(sum);\n    if (thread % lanes == 0) {",
        "    if (thread == 77) {\n        return;\n    }\n"
        "    sum = warp_sum(sum);\n    if (thread % lanes == 0) {",
    ),
    _control(
        "ballot of all lanes where some are elsewhere",
        *("keep", "plain"),
        "        const unsigned held = __ballot_sync(all_lanes, number != 0);\n        if (number != 0) {",
        "        unsigned held = 0;\n        if (number != 0) {\n"
        "            held = __ballot_sync(all_lanes, number != 0);",
    ),
    _control(
        "ballot by a lane that is not in its mask",
        *("keep", "plain"),
        "__ballot_sync(all_lanes, number != 0)",
        "__ballot_sync(0x7FFFFFFFU, number != 0)",
    ),
    _control(
        "uninitialised shared memory",
        "count",
        "plain",
        "        held[v] = 0;\n",
        "        static_cast<void>(held);\n",
    ),
    _control("uninitialised global memory", "keep", "plain", "*found = before", "*found += before"),
    _control("a copy that nobody waits for", "tile", "plain", "    wait_for_copies<0>();\n", ""),
    _control(
        "missing barrier behind copies",
        *("tile", "thread"),
        "    wait_for_copies<0>();\n    __syncthreads();",
        "    wait_for_copies<0>();",
    ),
    _control(
        "a copy that is committed after the wait",
        *("tile", "plain"),
        "    commit_copies();\n    wait_for_copies<0>();",
        "    wait_for_copies<0>();\n    commit_copies();",
    ),
    _control("misaligned copy", "tile", "plain", "codes + thread * 16,", "codes + thread * 16 + thread % 2 * 4,"),
    _control("copy from behind an array", "tile", "address", "if (thread < 48)", "if (thread < 49)"),
    _control(
        "product of matrices that a lane misses",
        *("tile", "plain"),
        "    if (threadIdx.x < lanes) {\n        const auto*",
        "    if (threadIdx.x < lanes - 1) {\n        const auto*",
    ),
    _control("shuffle taken for a fence", "pass", "thread", "__syncwarp()", "__shfl_sync(all_lanes, at, 0)"),
    _control("ballot taken for a fence", "pass", "thread", "__syncwarp()", "__ballot_sync(all_lanes, at)"),
    _control("nothing in place of a fence", "pass", "thread", "    __syncwarp();\n", ""),
    # What may look like a fault, and is none.
    _control("a barrier in place of a fence", "pass", "thread", "__syncwarp()", "__syncthreads()", silent=True),
    _control(
        "a barrier more than is needed",
        *("sum", "thread"),
        "    sum = warp_sum(sum);\n    if (thread % lanes == 0) {",
        "    __syncthreads();\n    sum = warp_sum(sum);\n    if (thread % lanes == 0) {",
        silent=True,
    ),
    _control(
        "a lane that goes another way, and comes back",
        *("keep", "plain"),
        "        before += __popc(held);",
        "        if (lane == 1) {\n            *found = 0;\n        }\n        __syncwarp();\n"
        "        before += __popc(held);",
        silent=True,
    ),
    _control(
        "a read of what the same thread has written",
        *("pass", "thread"),
        "    hand[thread] = from[at];\n",
        "    hand[thread] = 0;\n    hand[thread] += from[at];\n",
        silent=True,
    ),
]

OF_KERNELS = [
    _kernel(
        "weighted_degree without the barrier behind its cleared table",
        *("weighted_degree.cu", "degree", "thread"),
        "            *used = 0;\n        }\n        __syncthreads();\n",
        "            *used = 0;\n        }\n",
        "term_table.cuh",
    ),
    _kernel(
        "weighted_degree with a barrier that half of the block reaches",
        *("weighted_degree.cu", "degree", "plain"),
        "sums, degree);\n            __syncthreads();\n",
        "sums, degree);\n            if (threadIdx.x < 128) {\n                __syncthreads();\n            }\n",
    ),
    _kernel(
        "weighted_degree that does not clear its sums",
        *("weighted_degree.cu", "degree", "plain"),
        "            sums[slot] = 0;\n",
        "",
    ),
    _kernel(
        "weighted_degree that clears a slot too many",
        *("weighted_degree.cu", "degree", "address"),
        "slot < slots; slot += static_cast<int>(blockDim.x)",
        "slot <= slots; slot += static_cast<int>(blockDim.x)",
        "term_table.cuh",
    ),
    _kernel(
        "weighted_degree that writes behind its result",
        *("weighted_degree.cu", "degree", "address"),
        "degree[chunk.v] = static_cast<float>(unit.number(total));",
        "degree[chunk.v + 1] = static_cast<float>(unit.number(total));",
    ),
    _kernel(
        "weighted_degree that counts without atomics",
        *("weighted_degree.cu", "degree", "thread"),
        "atomicAdd(table.counts + slot, 1);",
        "++table.counts[slot];",
    ),
    _kernel(
        "graph_rank with too small an array",
        *("graph_rank.cu", "rank", "address"),
        "GPU_SHARED(float, parts, threads / lanes)",
        "GPU_SHARED(float, parts, threads / lanes - 1)",
    ),
    _kernel(
        "a sum of a block without its barrier",
        *("graph_rank.cu", "rank", "thread"),
        "    __syncthreads();\n    return of_warp(",
        "    return of_warp(",
        "gpu.cuh",
    ),
    _kernel(
        "evidence_graph whose lanes do not wait between two terms",
        *("evidence_graph.cu", "graph", "thread"),
        "            __syncwarp();\n        }\n    }\n}\n",
        "        }\n    }\n}\n",
    ),
    _kernel(
        "evidence_graph that votes where some lanes do not",
        *("evidence_graph.cu", "graph", "plain"),
        "const unsigned all = __ballot_sync(all_lanes, kept);",
        "const unsigned all = kept ? __ballot_sync(all_lanes, true) : 0;",
    ),
    _kernel(
        "a scan without the barrier behind its sums",
        *("scan.cu", "graph", "thread"),
        "    __syncthreads();\n    std::int64_t before",
        "    std::int64_t before",
    ),
    _kernel(
        "maxsim that does not wait for its copies",
        *("maxsim.cu", "maxsim", "plain"),
        "wait_for_copies<stages - 2>()",
        "wait_for_copies<stages - 1>()",
    ),
    _kernel(
        "maxsim without the barrier of its steps",
        *("maxsim.cu", "maxsim", "thread"),
        "                wait_for_copies<stages - 2>();\n                __syncthreads();\n",
        "                wait_for_copies<stages - 2>();\n",
    ),
    _kernel(
        "maxsim whose next tile begins too early",
        *("maxsim.cu", "maxsim", "thread"),
        "            add_total(row);\n            __syncthreads();\n",
        "            add_total(row);\n",
    ),
    _kernel(
        "pagerank that counts without atomics",
        *("pagerank.cu", "pagerank", "thread"),
        "atomicAdd(reinterpret_cast<unsigned long long*>(incoming.end + first + graphs.rows.values[e]), 1ULL)",
        "++incoming.end[first + graphs.rows.values[e]]",
    ),
    _kernel(
        "pagerank whose matrix is not cleared",
        *("pagerank.cu", "pagerank", "plain"),
        "            row[cell] = 0.0f;\n",
        "            static_cast<void>(cell);\n",
    ),
    _kernel(
        "pagerank whose rows go in among each other",
        *("pagerank.cu", "pagerank", "thread"),
        "        __syncthreads();  // a target occurs once in a row, so its sources come row by row\n",
        "",
    ),
    # No fault where a pool has one part, because `block_max` waits before the next pool. Parts need this barrier.
    replace(
        _kernel(
            "weighted_degree without the barrier between pools of one part",
            *("weighted_degree.cu", "degree", "thread"),
            "sums, degree);\n            __syncthreads();\n",
            "sums, degree);\n",
        ),
        silent=True,
    ),
    _line(
        "weighted_degree whose table holds the terms of the block's first pool",
        *("weighted_degree.cu", "degree"),
        "        table.clear();\n        return",
        "        if (first == pools.offsets[blockIdx.x]) {\n            table.clear();\n        }\n        return",
    ),
    _line(
        "gatv2 that reads the first channels of a wide row of bfloat16 again",
        *("gatv2.cu", "wide"),
        "four = load_four(row + first);",
        "four = load_four(row + (sizeof(T) == 2 && k > 0 ? first - 4 * S::Span : first));",
        "gatv2.cuh",
    ),
    _line(
        "a scan that leaves out the last number of the later tiles",
        *("scan.cu", "scan"),
        "        if (at < n) {\n            numbers[at] += totals",
        "        if (at + 1 < n) {\n            numbers[at] += totals",
    ),
    _line(
        "a scan that adds the sum of another tile",
        *("scan.cu", "scan"),
        "numbers[at] += totals[blockIdx.x];",
        "numbers[at] += totals[blockIdx.x + 1];",
    ),
    _line(
        "a scan whose lanes leave out their neighbour",
        *("scan.cu", "scan"),
        "sum += lane >= distance ? other : 0;",
        "sum += lane > distance ? other : 0;",
    ),
    _line(
        "hseq_stream that starts a kernel on the default stream",
        *("hseq_stream.cu", "steps"),
        "threads, 0, stream_of(queue), memory.windows",
        "threads, 0, nullptr, memory.windows",
    ),
    _line(
        "hseq_stream that clears memory on the default stream",
        *("hseq_stream.cu", "steps"),
        "cudaMemsetAsync(offsets.data(), 0, sizeof(std::int64_t), stream_of(queue))",
        "cudaMemsetAsync(offsets.data(), 0, sizeof(std::int64_t), nullptr)",
    ),
    _line(
        "hseq_stream that takes a cursor beyond its stream",
        *("hseq_stream.cu", "beyond"),
        "cursors.place[i] > length + stream.live.places",
        "cursors.place[i] > length + stream.live.places + 1",
    ),
    _line(
        "hseq_stream whose windows are one segment too long",
        *("hseq_stream.cu", "steps"),
        "for (std::int64_t k = 1; k < room; ++k)",
        "for (std::int64_t k = 0; k < room; ++k)",
    ),
    _kernel(
        "hseq_stream whose choices do not wait for those that read the table",
        *("hseq_stream.cu", "steps", "thread"),
        "        __syncwarp();  // other lanes may still read the table\n",
        "",
    ),
    _kernel(
        "hseq_stream that finds the first choice without atomics",
        *("hseq_stream.cu", "steps", "thread"),
        "            atomicMin(known.first + known.add(cursors.chosen.values[i]), static_cast<int>(i - begin));\n",
        "            int& first = known.first[known.add(cursors.chosen.values[i])];\n"
        "            first = min(first, static_cast<int>(i - begin));\n",
    ),
    _line(
        "live places that go down to the first word of a height",
        *("hseq_stream.cu", "far"),
        "at = at * 64 + lowest(words[begin[h - 1] + at]);",
        "at = at * 64 + lowest(words[begin[h - 1]]);",
        "live_places.cuh",
    ),
    _line(
        "live places that look at the wrong bits of the height above",
        *("hseq_stream.cu", "far"),
        "            at = word + 1;\n",
        "            at = word;\n",
        "live_places.cuh",
    ),
    _line(
        "a table of segments that is not searched where two fall on one slot",
        *("hseq_stream.cu", "steps"),
        "        while (segments[slot] != segment && segments[slot] != -1) {\n"
        "            slot = (slot + 1) & (slots - 1);\n        }\n        return segments",
        "        return segments",
        "known_segments.cuh",
    ),
]
