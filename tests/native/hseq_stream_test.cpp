// hseq_stream on good and on malformed input, and from many threads.
#include "pyfast/hseq_stream.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "pyfast/error.hpp"

namespace {

using pyfast::Neighbors;
using Numbers = std::vector<std::int64_t>;

// Arrays exactly as large as their contents, so that a sanitizer sees one step too far.
struct Lists {
    Numbers offsets{0};
    Numbers values;

    void push(const Numbers& list) {
        values.insert(values.end(), list.begin(), list.end());
        offsets.push_back(static_cast<std::int64_t>(values.size()));
        values.shrink_to_fit();
        offsets.shrink_to_fit();
    }
    [[nodiscard]] pyfast::Ragged<std::int64_t> view() const { return {offsets, values}; }
};

// Tables of rows of cells, and documents of subgraphs of triplets.
struct Problem {
    std::vector<std::uint8_t> level;
    Numbers parent;
    Numbers subtree_end;
    pyfast::OwnedOrder order;
    pyfast::OwnedTombstones deleted;
    Numbers place;
    Lists selected;
    Lists prior;
    Lists chosen;

    [[nodiscard]] pyfast::Hierarchy hierarchy() const { return {level, parent, subtree_end}; }
    [[nodiscard]] pyfast::Order ordered() const { return {order.segments.span(), order.starts}; }
    [[nodiscard]] pyfast::Tombstones tombstones() const { return {deleted.mask.span(), deleted.live.span()}; }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(level.size()); }
    [[nodiscard]] pyfast::Stream stream() const { return {size(), ordered(), tombstones()}; }
    [[nodiscard]] pyfast::Cursors cursors() const { return {place, selected.view(), prior.view()}; }
};

Problem random_problem(int documents, std::size_t cursors, unsigned seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::int64_t n) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    Problem q;
    const auto open = [&](std::uint8_t level, std::int64_t parent) {
        q.level.push_back(level);
        q.parent.push_back(parent);
        return q.size() - 1;
    };
    for (int d = 0; d < documents; ++d) {
        const auto kind = static_cast<std::uint8_t>(below(2) * 4);  // a document or a table
        const std::int64_t root = open(kind, -1);
        for (std::int64_t m = below(5); m > 0; --m) {
            const std::int64_t middle = open(kind == 0 ? 7 : 5, root);
            for (std::int64_t k = below(6); k > 0; --k) {
                open(kind == 0 ? 8 : 6, middle);
            }
        }
    }
    const auto ends = pyfast::subtree_ends(q.parent);
    q.subtree_end.assign(ends.span().begin(), ends.span().end());
    const std::vector<std::uint8_t> priority{5, 8, 6};
    q.order = pyfast::level_order(q.level, priority);
    Numbers deleted;
    for (int k = 0; k < documents / 3; ++k) {
        deleted.push_back(below(q.size()));
    }
    q.deleted = pyfast::delete_segments(q.hierarchy(), q.ordered(), {}, deleted);
    const auto some = [&](std::int64_t most) {
        Numbers list;
        for (std::int64_t k = below(most); k > 0; --k) {
            const std::int64_t segment = below(q.size());
            if (std::find(list.begin(), list.end(), segment) == list.end()) {
                list.push_back(segment);
            }
        }
        return list;
    };
    for (std::size_t c = 0; c < cursors; ++c) {
        q.place.push_back(below(10));
        q.selected.push(some(30));
        q.prior.push(some(12));
        q.chosen.push(some(12));
    }
    return q;
}

Numbers numbers(std::span<const std::int64_t> values) { return {values.begin(), values.end()}; }

void append(Numbers& out, const pyfast::SegmentLists& found) {
    out.insert(out.end(), found.offsets.begin(), found.offsets.end());
    const Numbers segments = numbers(found.segments.span());
    out.insert(out.end(), segments.begin(), segments.end());
}

Numbers run_all(const Problem& q, int threads) {
    Numbers out;
    append(out, pyfast::window(q.stream(), q.cursors(), 300, threads));
    const pyfast::Refreshed after = pyfast::refresh(q.stream(), q.cursors(), q.chosen.view(), 7, threads);
    const Numbers place = numbers(after.place.span());
    out.insert(out.end(), place.begin(), place.end());
    append(out, after.selected);
    for (const auto kind :
         {Neighbors::children, Neighbors::parent, Neighbors::row, Neighbors::column, Neighbors::relation}) {
        append(out, pyfast::neighbors(q.hierarchy(), q.tombstones().mask, q.chosen.view(), q.selected.view(), kind,
                                      1000, threads));
    }
    return out;
}

void check_error(const std::function<void()>& run, std::string_view name) {
    try {
        run();
    } catch (const pyfast::Error& error) {
        CHECK(std::string_view(error.what()).starts_with(name));
        return;
    }
    CHECK(false);
}

void check_meaning(const Problem& q) {
    const auto found = pyfast::window(q.stream(), q.cursors(), 20, 1);
    const auto mask = q.tombstones().mask;
    for (std::size_t c = 0; c < q.place.size(); ++c) {
        const auto first = found.segments.span().begin() + found.offsets[c];
        const Numbers segments(first, found.segments.span().begin() + found.offsets[c + 1]);
        const auto selected = q.selected.view()[c];
        for (const std::int64_t segment : segments) {
            CHECK(std::count(segments.begin(), segments.end(), segment) == 1);
            CHECK(std::find(selected.begin(), selected.end(), segment) == selected.end());
            CHECK(mask[static_cast<std::size_t>(segment)] == 0);
        }
    }
    const auto again = pyfast::mark_deleted(q.ordered(), mask);
    CHECK(std::ranges::equal(again.live.span(), q.deleted.live.span()));
    pyfast::check_subtree_ends(q.parent, q.subtree_end);
}

void check_errors(Problem q) {
    constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max();
    const auto window = [&] { pyfast::window(q.stream(), q.cursors(), 5, 2); };
    const auto all = [&] { run_all(q, 2); };
    for (const std::int64_t wrong : {std::int64_t{-1}, far, -far, q.size()}) {
        const auto check = [&](std::int64_t& number, const char* name, const std::function<void()>& run) {
            const std::int64_t right = std::exchange(number, wrong);
            check_error(run, name);
            number = right;
            run();
        };
        check(q.place.back(), "place", window);
        check(q.selected.values.back(), "selected", window);
        check(q.prior.values.back(), "priors", window);
        check(q.chosen.values.back(), "chosen", all);
        check(q.order.segments.span()[0], "order",
              [&] { pyfast::mark_deleted(q.ordered(), q.tombstones().mask); });
        check(q.selected.offsets[1], "selected", window);
        check(q.prior.offsets.back(), "priors", window);
        check(q.subtree_end[0], "subtree_end", [&] { pyfast::check_subtree_ends(q.parent, q.subtree_end); });
    }
    q.prior.values.back() = q.prior.values[q.prior.values.size() - 2];
    check_error([&] { pyfast::window(q.stream(), q.cursors(), 5, 1); }, "priors");
    check_error([&] { pyfast::subtree_ends(Numbers{-1, 1}); }, "parent");
    check_error([&] { pyfast::level_order(std::vector<std::uint8_t>{9}, {}); }, "level");
    check_error([&] { pyfast::level_order({}, std::vector<std::uint8_t>{3, 3}); }, "priority");
    // Words that promise live places where there are none, and too few of them.
    const std::vector<std::uint8_t> level(200, 0);
    const auto order = pyfast::level_order(level, std::vector<std::uint8_t>{0});
    const std::vector<std::uint8_t> mask(200, 1);
    const Numbers zero{0};
    const Numbers none{0, 0};
    const pyfast::Cursors one{zero, {none, {}}, {none, {}}};
    for (const std::size_t words : {std::size_t{5}, std::size_t{4}, std::size_t{6}}) {
        std::vector<std::uint64_t> live(words, 0);
        live.back() = 8;
        const pyfast::Stream stream{200, {order.segments.span(), order.starts}, {mask, live}};
        check_error([&] { pyfast::window(stream, one, 5, 1); }, "live");
    }
}

void check_callers(const Problem& q) {
    const Numbers expected = run_all(q, 1);
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&] {
            for (int turn = 0; turn < 4; ++turn) {
                CHECK(run_all(q, 2) == expected);
            }
        });
    }
}

}  // namespace

void test_hseq_stream() {
    const Problem q = random_problem(300, 500, 1);
    const Numbers expected = run_all(q, 1);
    CHECK(run_all(q, 2) == expected);
    CHECK(run_all(q, 5) == expected);
    check_meaning(q);
    check_errors(random_problem(20, 3, 4));
    check_callers(q);
}
