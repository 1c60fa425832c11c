// Ranks the documents of a TSV file for a question, as N2N-GQA does and as bridge_rank does:
//
//     rank documents.tsv "Who discovered the moon that Voyager 2 flew past at Neptune?"
//
// A line is `passage` or `table`, a title and a text, with tabs between them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "pyfast/bridge_rank.hpp"
#include "pyfast/error.hpp"
#include "pyfast/evidence_graph.hpp"
#include "pyfast/graph_rank.hpp"
#include "pyfast/prune.hpp"
#include "pyfast/weighted_degree.hpp"

namespace {

using Counts = std::map<std::int32_t, float>;  // in order of the term's id, as a row must be

// What pyfast::Forward looks at: the library owns no memory of its callers.
struct Index {
    std::vector<std::string> titles;
    std::vector<std::uint8_t> is_table;
    std::map<std::string, std::int32_t> vocabulary;
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indices;
    std::vector<float> weights;
    std::vector<float> idf;

    [[nodiscard]] pyfast::Forward view() const {
        return {indptr, {}, indices, weights, static_cast<std::int64_t>(vocabulary.size())};
    }
};

// Runs of two letters and digits or more, in lower case.
std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> out(1);
    for (const char c : text + " ") {
        const bool in_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (in_word) {
            out.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        } else if (out.back().size() >= 2) {
            out.emplace_back();
        } else {
            out.back().clear();
        }
    }
    out.pop_back();
    return out;
}

// Counts times idf, of Euclidean length 1.
void weigh(Counts& row, const std::vector<float>& idf) {
    float squares = 0.0f;
    for (auto& [term, weight] : row) {
        weight *= idf[static_cast<std::size_t>(term)];
        squares += weight * weight;
    }
    for (auto& [term, weight] : row) {
        weight /= std::sqrt(squares);
    }
}

Index read(const std::string& path) {
    std::ifstream file(path);
    if (!file) {
        throw std::runtime_error("cannot read " + path);
    }
    Index index;
    std::vector<Counts> rows;
    std::vector<float> holders;  // per term: how many documents hold it
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string kind;
        std::string title;
        std::string text;
        std::getline(std::getline(std::getline(fields, kind, '\t'), title, '\t'), text);
        Counts& row = rows.emplace_back();
        for (const std::string& word : words(title + " " + text)) {
            const auto next = static_cast<std::int32_t>(index.vocabulary.size());
            const std::int32_t term = index.vocabulary.emplace(word, next).first->second;
            holders.resize(index.vocabulary.size());
            if (row[term]++ == 0.0f) {
                holders[static_cast<std::size_t>(term)] += 1.0f;
            }
        }
        index.titles.push_back(title);
        index.is_table.push_back(kind == "table" ? 1 : 0);
    }
    for (const float count : holders) {
        index.idf.push_back(std::log((1.0f + static_cast<float>(rows.size())) / (1.0f + count)) + 1.0f);
    }
    for (Counts& row : rows) {
        weigh(row, index.idf);
        for (const auto& [term, weight] : row) {
            index.indices.push_back(term);
            index.weights.push_back(weight);
        }
        index.indptr.push_back(static_cast<std::int64_t>(index.indices.size()));
    }
    return index;
}

Counts read_question(const Index& index, const std::string& question) {
    Counts row;
    for (const std::string& word : words(question)) {
        if (const auto known = index.vocabulary.find(word); known != index.vocabulary.end()) {
            row[known->second] += 1.0f;
        }
    }
    weigh(row, index.idf);
    return row;
}

// The cosine of a document and the question: the semantic score here. Any retriever's scores will do.
float cosine(const Index& index, std::int32_t document, Counts& question) {
    pyfast::RowMemory memory;
    const pyfast::Row row = checked_row(index.view(), document, memory);
    float sum = 0.0f;
    for (std::size_t e = 0; e < row.terms.size(); ++e) {
        const auto shared = question.find(row.terms[e]);
        sum += shared == question.end() ? 0.0f : row.weights[e] * shared->second;
    }
    return sum;
}

void print(const char* name, const Index& index, const std::vector<std::int32_t>& pool,
           const std::vector<float>& score, const std::vector<std::int32_t>& nodes) {
    std::printf("%s\n", name);
    for (const std::int32_t node : nodes) {
        const auto v = static_cast<std::size_t>(node);
        const auto document = static_cast<std::size_t>(pool[v]);
        std::printf("  %.6f  %2d  %s\n", static_cast<double>(score[v]), pool[v], index.titles[document].c_str());
    }
}

void rank(const std::string& path, const std::string& asked) {
    const Index index = read(path);
    Counts question = read_question(index, asked);

    // A batch of one pool: the documents that share a word with the question, the best first.
    std::vector<float> of_document(index.titles.size());
    std::vector<std::int32_t> pool;
    for (std::size_t d = 0; d < of_document.size(); ++d) {
        of_document[d] = cosine(index, static_cast<std::int32_t>(d), question);
        if (of_document[d] > 0.0f) {
            pool.push_back(static_cast<std::int32_t>(d));
        }
    }
    const auto semantic_of = [&](std::int32_t d) { return of_document[static_cast<std::size_t>(d)]; };
    std::ranges::stable_sort(pool, std::ranges::greater{}, semantic_of);
    std::vector<float> semantic(pool.size());
    std::ranges::transform(pool, semantic.begin(), semantic_of);
    std::vector<std::uint8_t> is_table(pool.size());
    std::ranges::transform(pool, is_table.begin(),
                           [&](std::int32_t d) { return index.is_table[static_cast<std::size_t>(d)]; });
    const std::vector<std::int64_t> offsets{0, static_cast<std::int64_t>(pool.size())};
    const pyfast::Pools pools{offsets, pool};

    const pyfast::Graph graph = evidence_graph(index.view(), pools, {}, {.top_k = 3});
    std::printf("%zu documents, %zu edges\n", pool.size(), graph.indices.size);

    std::vector<float> degree(pool.size());
    std::vector<float> score(pool.size());
    weighted_degree(index.view(), pools, {}, degree);
    pyfast::graph_rank(semantic, degree, offsets, 0.85f, score);
    print("graph_rank, pruned", index, pool, score,
          pyfast::prune(score, is_table, offsets, {.min_nodes = 3, .max_nodes = 6, .per_kind = 1}).nodes);

    std::vector<std::int32_t> terms;
    for (const auto& [term, weight] : question) {
        terms.push_back(term);
    }
    const std::vector<std::int64_t> term_offsets{0, static_cast<std::int64_t>(terms.size())};
    bridge_rank(index.view(), pools, semantic, {term_offsets, terms}, {}, score);
    std::vector<std::int32_t> best(pool.size());
    std::iota(best.begin(), best.end(), 0);
    std::ranges::stable_sort(best, std::ranges::greater{},
                             [&](std::int32_t v) { return score[static_cast<std::size_t>(v)]; });
    print("bridge_rank", index, pool, score, best);
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) {
        std::fputs("usage: rank DOCUMENTS.tsv QUESTION\n", stderr);
        return 2;
    }
    try {
        rank(arguments[1], arguments[2]);
    } catch (const pyfast::Error& error) {
        std::fprintf(stderr, "pyfast refused the input: %s\n", error.what());
        return 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
