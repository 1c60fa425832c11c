#include "pyfast/cuda/hseq_stream.hpp"

#include "memory.hpp"

namespace pyfast::python::cuda {

namespace {

using StreamMemory = std::tuple<std::int64_t, Memory, Memory, Memory>;  // size, order, mask, live
using CursorMemory = std::tuple<Memory, RaggedMemory, RaggedMemory>;    // place, selected, prior

Stream stream(const StreamMemory& memory) {
    const auto& [size, order, mask, live] = memory;
    return {
        size, {at<const std::int64_t>(order), {}}, {at<const std::uint8_t>(mask), at<const std::uint64_t>(live)}};
}

Cursors cursors(const CursorMemory& memory) {
    const auto& [place, selected, prior] = memory;
    return {at<const std::int64_t>(place), ragged<std::int64_t>(selected), ragged<std::int64_t>(prior)};
}

}  // namespace

void bind_hseq_stream(py::module_& m) {
    m.def(
        "window_workspace",
        [](const StreamMemory& places, const CursorMemory& batch, std::int64_t width) {
            return pyfast::cuda::window_workspace(stream(places), cursors(batch), width);
        },
        py::arg("stream"), py::arg("cursors"), py::arg("width"));
    m.def(
        "window",
        [](const StreamMemory& places, const CursorMemory& batch, std::int64_t width, const Memory& offsets,
           const Memory& segments, const QueueMemory& on) {
            pyfast::cuda::window(stream(places), cursors(batch), width, at<std::int64_t>(offsets),
                                 at<std::int64_t>(segments), queue(on));
        },
        Released(), py::arg("stream"), py::arg("cursors"), py::arg("width"), py::arg("offsets"),
        py::arg("segments"), py::arg("queue"));
    m.def(
        "refresh_workspace",
        [](const CursorMemory& batch, const RaggedMemory& chosen) {
            return pyfast::cuda::refresh_workspace(cursors(batch), ragged<std::int64_t>(chosen));
        },
        py::arg("cursors"), py::arg("chosen"));
    m.def(
        "refresh",
        [](const StreamMemory& places, const CursorMemory& batch, const RaggedMemory& chosen, std::int64_t past,
           const Memory& place, const Memory& offsets, const Memory& segments, const QueueMemory& on) {
            pyfast::cuda::refresh(stream(places), cursors(batch), ragged<std::int64_t>(chosen), past,
                                  {at<std::int64_t>(place), at<std::int64_t>(offsets), at<std::int64_t>(segments)},
                                  queue(on));
        },
        Released(), py::arg("stream"), py::arg("cursors"), py::arg("chosen"), py::arg("past"), py::arg("place"),
        py::arg("offsets"), py::arg("segments"), py::arg("queue"));
}

}  // namespace pyfast::python::cuda
