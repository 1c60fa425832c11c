// A loop over pools on a few threads. One thread handles a pool from start to end, and threads share nothing, so
// results do not depend on their number.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pyfast {

// The maximum number of threads of a call: the machine's cores, but at least 16, so that a small machine can try
// what a large one runs.
inline std::size_t most_threads() {
    static const std::size_t most = std::max(16U, std::thread::hardware_concurrency());
    return most;
}

// Calls body(workspace, p) for p in 0..n-1. Each thread makes one workspace with make(). Threads take pools in
// order, `grain` at a time. If several pools fail, the error of the first one is thrown.
template <class Make, class Body>
void parallel_for(std::size_t n, int threads, std::size_t grain, const Make& make, const Body& body) {
    const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), most_threads());
    const std::size_t workers = std::min(wanted, (n + grain - 1) / std::max<std::size_t>(grain, 1));
    std::atomic<std::size_t> next{0};
    std::mutex guard;
    std::exception_ptr error;
    std::size_t error_at = n;

    const auto work = [&] {
        std::size_t p = 0;
        try {
            auto workspace = make();
            for (std::size_t first = next.fetch_add(grain); first < n; first = next.fetch_add(grain)) {
                for (p = first; p < std::min(first + grain, n); ++p) {
                    body(workspace, p);
                }
            }
        } catch (...) {
            const std::lock_guard lock(guard);
            if (p < error_at || !error) {
                error = std::current_exception();
                error_at = p;
            }
            next.store(n);
        }
    };
    std::vector<std::thread> others;
    others.reserve(workers);
    try {
        for (std::size_t w = 1; w < workers; ++w) {
            others.emplace_back(work);
        }
    } catch (const std::system_error&) {
        // The system gives no more threads, so the running ones do all the work.
    }
    work();
    for (std::thread& other : others) {
        other.join();
    }
    if (error) {
        std::rethrow_exception(error);
    }
}

}  // namespace pyfast
