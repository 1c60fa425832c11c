// hseq_stream: windows and steps; and the running sums that make their offsets.
#include "op_calls.hpp"
#include "pyfast/cuda/hseq_stream.hpp"
#include "scan.cuh"

namespace {

using namespace driver;
using namespace pyfast::cuda;

pyfast::Stream stream(Arguments& a) {
    pyfast::Stream out;
    out.size = a.integer();
    out.order.segments = a.array<const std::int64_t>();
    out.order.starts = a.array<const std::int64_t>();
    out.tombstones.mask = a.array<const std::uint8_t>();
    out.tombstones.live = a.array<const std::uint64_t>();
    return out;
}

pyfast::Cursors cursors(Arguments& a) {
    const auto place = a.array<const std::int64_t>();
    const auto selected = ragged<std::int64_t>(a);
    return {place, selected, ragged<std::int64_t>(a)};
}

void window_workspace_(Arguments& a) {
    const auto segments = stream(a);
    const auto batch = cursors(a);
    const std::int64_t width = a.integer();
    give(a, window_workspace(segments, batch, width));
}

void window_(Arguments& a) {
    const auto segments = stream(a);
    const auto batch = cursors(a);
    const std::int64_t width = a.integer();
    const auto offsets = a.array<std::int64_t>();
    const auto found = a.array<std::int64_t>();
    window(segments, batch, width, offsets, found, queue(a));
}

void refresh_workspace_(Arguments& a) {
    const auto batch = cursors(a);
    const auto chosen = ragged<std::int64_t>(a);
    give(a, refresh_workspace(batch, chosen));
}

void refresh_(Arguments& a) {
    const auto segments = stream(a);
    const auto batch = cursors(a);
    const auto chosen = ragged<std::int64_t>(a);
    const std::int64_t past = a.integer();
    RefreshedArrays out;
    out.place = a.array<std::int64_t>();
    out.offsets = a.array<std::int64_t>();
    out.segments = a.array<std::int64_t>();
    refresh(segments, batch, chosen, past, out, queue(a));
}

void scan_workspace_(Arguments& a) {
    const auto numbers = a.integer<std::size_t>();
    give(a, scan_memory(numbers) * sizeof(std::int64_t));
}

void scan_(Arguments& a) {
    const auto numbers = a.array<std::int64_t>();
    const Queue on = queue(a);
    auto* const memory = reinterpret_cast<std::int64_t*>(on.workspace.data());
    scan(numbers.data(), numbers.size(), memory, on.status, stream_of(on));
}

}  // namespace

void driver::add_stream_calls(Calls& all) {
    all["refresh"] = refresh_;
    all["refresh_workspace"] = refresh_workspace_;
    all["scan"] = scan_;
    all["scan_workspace"] = scan_workspace_;
    all["window"] = window_;
    all["window_workspace"] = window_workspace_;
}
