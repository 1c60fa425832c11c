// Potentially long-running ops: they run without the GIL, and Ctrl-C stops them.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <optional>
#include <system_error>
#include <tuple>
#include <vector>

#include "arrays.hpp"
#include "pyfast/iteration.hpp"

namespace pyfast::python {

// Calls work(stop) without the GIL. `operations` is an upper bound on the work. If it is large, another
// thread does the work while this one checks for signals, because Python handles them here. If a signal
// handler raises an exception, the work stops and the exception is thrown.
template <class Work>
void stoppable(double operations, const Work& work) {
    constexpr double short_work = 5e8;  // at most a second
    constexpr std::chrono::milliseconds pause{10};
    std::atomic<bool> stop{false};
    const py::gil_scoped_release release;
    std::future<void> done;
    if (operations >= short_work) {
        try {
            done = std::async(std::launch::async, [&] { work(&stop); });
        } catch (const std::system_error&) {
            // No more threads are available, so this one does the work, and signals wait.
        }
    }
    if (!done.valid()) {
        work(nullptr);
        return;
    }
    std::optional<py::error_already_set> raised;
    while (!raised && done.wait_for(pause) == std::future_status::timeout) {
        const py::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) {
            raised.emplace();
        }
    }
    if (!raised) {
        done.get();
        return;
    }
    stop = true;
    try {
        done.get();
    } catch (const Stopped&) {
        // `stop` was set
    }
    throw py::error_already_set(*std::move(raised));
}

// For each pool: iterations, whether it converged.
inline std::tuple<py::array_t<std::int64_t>, py::array_t<bool>> arrays(const std::vector<Convergence>& pools) {
    auto [iterations, taken] = fresh<std::int64_t>(pools.size());
    auto [converged, done] = fresh<bool>(pools.size());
    for (std::size_t p = 0; p < pools.size(); ++p) {
        taken[p] = pools[p].iterations;
        done[p] = pools[p].converged;
    }
    return {iterations, converged};
}

}  // namespace pyfast::python
