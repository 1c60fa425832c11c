// What the windows on a corpus's segments promise of any result that they give back.
#include <algorithm>
#include <vector>

#include "fuzz_input.hpp"
#include "fuzz_ops.hpp"
#include "pyfast/hseq_stream.hpp"

namespace fuzz {

namespace {

using Numbers = std::vector<std::int64_t>;

// A small corpus, an order of its segments, what is deleted, the cursors of some questions, and then perhaps some
// numbers of it spoilt.
struct Corpus {
    explicit Corpus(Input& in) {
        for (std::int64_t documents = in.below(5); documents > 0; --documents) {
            const auto root = static_cast<std::uint8_t>(in.below(2) * 4);  // a document or a table
            const std::int64_t top = open(root, -1);
            for (std::int64_t m = in.below(4); m > 0; --m) {
                const std::int64_t middle = open(root == 0 ? 7 : 5, top);  // a subgraph or a row
                for (std::int64_t k = in.below(5); k > 0; --k) {
                    open(root == 0 ? 8 : 6, middle);
                }
            }
        }
        if (in.one_in(16)) {  // so many that tombstones have a second level
            for (std::int64_t k = 4000 + in.below(1000); k > 0; --k) {
                open(8, -1);
            }
        }
        const std::int64_t segments = size();
        const auto some = [&](std::int64_t most) {
            Numbers list;
            for (std::int64_t k = segments == 0 ? 0 : in.below(most); k > 0; --k) {
                const std::int64_t segment = in.below(segments);
                if (std::find(list.begin(), list.end(), segment) == list.end()) {
                    list.push_back(segment);
                }
            }
            return list;
        };
        for (std::int64_t cursors = in.below(4); cursors > 0; --cursors) {
            place.push_back(in.below(segments + 1));
            selected.push(some(9));
            prior.push(some(6));
            chosen.push(some(6));
        }
        deleted = some(8);
        priority = {5, 8, 6};
        priority.resize(static_cast<std::size_t>(in.below(4)));
        width = in.setting(12);
        past = in.setting(6);
        limit = in.setting(12);
        threads = in.one_in(8) ? static_cast<int>(in.setting(4)) : 1;
        for (std::int64_t times = in.below(6); times > 3; --times) {
            spoil(in);
        }
        fit();
    }

    std::int64_t open(std::uint8_t kind, std::int64_t above) {
        level.push_back(kind);
        parent.push_back(above);
        return size() - 1;
    }
    [[nodiscard]] std::int64_t size() const { return std::ssize(level); }
    [[nodiscard]] pyfast::Cursors cursors() const { return {place, selected.view(), prior.view()}; }

    void spoil(Input& in) {
        switch (in.below(12)) {
            case 0: in.spoil(level); break;
            case 1: in.spoil(parent); break;
            case 2: in.spoil(place); break;
            case 3: in.spoil(selected.offsets); break;
            case 4: in.spoil(selected.values); break;
            case 5: in.spoil(prior.offsets); break;
            case 6: in.spoil(prior.values); break;
            case 7: in.spoil(chosen.offsets); break;
            case 8: in.spoil(chosen.values); break;
            case 9: in.spoil(deleted); break;
            case 10: in.spoil(priority); break;
            default: spoils_made = true;  // what the ops make of these, before others read it
        }
    }

    void fit() {
        level.shrink_to_fit();
        parent.shrink_to_fit();
        place.shrink_to_fit();
        for (Lists<std::int64_t>* lists : {&selected, &prior, &chosen}) {
            lists->offsets.shrink_to_fit();
            lists->values.shrink_to_fit();
        }
    }

    std::vector<std::uint8_t> level;
    Numbers parent;
    Numbers place;
    Lists<std::int64_t> selected, prior, chosen;
    Numbers deleted;
    std::vector<std::uint8_t> priority;
    std::int64_t width = 0;
    std::int64_t past = 0;
    std::int64_t limit = 0;
    int threads = 1;
    bool spoils_made = false;
};

template <class T>
std::vector<T> copied(std::span<const T> values) {
    return {values.begin(), values.end()};
}

// Every list: as long as it may be, each segment once, all of the corpus, none of those that must not be there.
void check_lists(const pyfast::SegmentLists& found, std::size_t lists, std::int64_t size, std::int64_t most,
                 std::span<const std::uint8_t> mask, const Lists<std::int64_t>& without) {
    REQUIRE(found.offsets.size() == lists + 1 && well_formed(found.offsets, found.segments.span().size()));
    for (std::size_t p = 0; p < lists; ++p) {
        const auto first = found.segments.span().begin() + found.offsets[p];
        Numbers list(first, found.segments.span().begin() + found.offsets[p + 1]);
        REQUIRE(std::ssize(list) <= most);
        for (const std::int64_t segment : list) {
            REQUIRE(segment >= 0 && segment < size);
            REQUIRE(mask.empty() || mask[static_cast<std::size_t>(segment)] == 0);
            if (without.offsets.size() == lists + 1) {
                const auto excluded = without.view()[p];
                REQUIRE(std::find(excluded.begin(), excluded.end(), segment) == excluded.end());
            }
        }
        std::sort(list.begin(), list.end());
        REQUIRE(std::adjacent_find(list.begin(), list.end()) == list.end());
    }
}

}  // namespace

void fuzz_hseq_stream(Input& in) {
    Corpus q(in);
    const auto ends = pyfast::subtree_ends(q.parent);
    Numbers subtree_end = copied<std::int64_t>(ends.span());
    pyfast::check_subtree_ends(q.parent, subtree_end);
    const pyfast::OwnedOrder made = pyfast::level_order(q.level, q.priority);
    Numbers segments = copied<std::int64_t>(made.segments.span());
    Numbers starts = made.starts;
    if (q.spoils_made) {
        in.coin() ? in.spoil(subtree_end) : in.coin() ? in.spoil(segments) : in.spoil(starts);
        subtree_end.shrink_to_fit();
        segments.shrink_to_fit();
        starts.shrink_to_fit();
    }
    const pyfast::Hierarchy hierarchy{q.level, q.parent, subtree_end};
    const pyfast::Order order{segments, starts};
    const pyfast::OwnedTombstones gone = pyfast::delete_segments(hierarchy, order, {}, q.deleted);
    std::vector<std::uint8_t> mask = copied<std::uint8_t>(gone.mask.span());
    const auto words = gone.live.span();
    std::vector<std::uint64_t> live(words.begin(), words.end());
    if (!q.spoils_made) {
        for (const std::int64_t segment : q.deleted) {
            REQUIRE(mask[static_cast<std::size_t>(segment)] != 0);
        }
        const pyfast::OwnedTombstones again = pyfast::mark_deleted(order, mask);
        REQUIRE(std::ranges::equal(again.live.span(), words));
    } else if (in.coin()) {
        if (in.coin() || live.empty()) {
            in.spoil(mask);
        } else {
            live[static_cast<std::size_t>(in.below(std::ssize(live)))] = in.bits(8);
        }
        mask.shrink_to_fit();
    }
    const pyfast::Stream stream{q.size(), order, {mask, live}};
    const pyfast::SegmentLists windows = pyfast::window(stream, q.cursors(), q.width, q.threads);
    if (!q.spoils_made) {
        check_lists(windows, q.place.size(), q.size(), q.width, mask, q.selected);
    }
    const pyfast::Refreshed after = pyfast::refresh(stream, q.cursors(), q.chosen.view(), q.past, q.threads);
    REQUIRE(after.place.span().size() == q.place.size());
    for (std::size_t c = 0; c < q.place.size(); ++c) {
        REQUIRE(after.place.span()[c] >= q.place[c]);
    }
    const auto kind = static_cast<pyfast::Neighbors>(in.below(5));
    const pyfast::SegmentLists near =
        pyfast::neighbors(hierarchy, mask, q.chosen.view(), q.selected.view(), kind, q.limit, q.threads);
    if (!q.spoils_made) {
        check_lists(near, q.chosen.offsets.size() - 1, q.size(), q.limit, mask, q.selected);
    }
}

}  // namespace fuzz
