#include "pyfast/bm25.hpp"

#include <utility>
#include <vector>

#include "arrays.hpp"

namespace pyfast::python {

// TermCounts as the Python layer passes them: (indptr, documents, counts, lengths, columns, deleted). The last two
// may be empty.
using TermCountsArrays = std::tuple<py::array, py::array, py::array, py::array, py::array, py::array>;

void bind_bm25(py::module_& m) {
    m.def(
        "bm25",
        [](const std::vector<TermCountsArrays>& parts, const py::array& query_offsets,
           const py::array& query_terms, std::int64_t k, const std::optional<RaggedArrays>& filter, double k1,
           double b, const py::array& documents, const py::array& total_length, int threads) {
            std::vector<TermCounts> counts;
            counts.reserve(parts.size());
            for (const auto& [indptr, ids, times, lengths, columns, deleted] : parts) {
                const bool small = times.dtype().equal(py::dtype::of<std::uint8_t>());
                counts.push_back({.indptr = view<std::int64_t>(indptr, "parts.indptr"),
                                  .documents = view<std::int32_t>(ids, "parts.documents"),
                                  .lengths = view<std::int32_t>(lengths, "parts.lengths"),
                                  .columns = view<std::int32_t>(columns, "parts.columns"),
                                  .deleted = view<std::uint8_t>(deleted, "parts.deleted")});
                if (small) {
                    counts.back().small_counts = view<std::uint8_t>(times, "parts.counts");
                } else {
                    counts.back().counts = view<std::int32_t>(times, "parts.counts");
                }
            }
            const auto queries = ragged(query_offsets, query_terms, "query_offsets, query_terms");
            std::optional<Ragged<std::int32_t>> allowed;
            if (filter) {
                allowed = ragged(std::get<0>(*filter), std::get<1>(*filter), "filter");
            }
            Bm25Options options{.k = k, .k1 = k1, .b = b, .threads = threads};
            options.query_documents = view<std::int64_t>(documents, "documents");
            options.query_lengths = view<std::int64_t>(total_length, "total_length");
            if (options.query_documents.size() == 1 && options.query_lengths.size() == 1) {  // for all queries
                options.documents = std::exchange(options.query_documents, {}).front();
                options.total_length = std::exchange(options.query_lengths, {}).front();
            }
            RankedPools found;
            {
                const py::gil_scoped_release release;
                found = bm25(counts, queries, allowed, options);
            }
            return tuple(found);
        },
        py::arg("parts"), py::arg("query_offsets"), py::arg("query_terms"), py::arg("k"), py::arg("filter"),
        py::arg("k1"), py::arg("b"), py::arg("documents"), py::arg("total_length"), py::arg("threads"));
}

}  // namespace pyfast::python
