#include "pyfast/hseq_stream.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string>
#include <vector>

#include "checked_offsets.hpp"
#include "live_places.hpp"
#include "parallel.hpp"
#include "reused.hpp"

namespace pyfast {

namespace {

using Segments = std::span<const std::int64_t>;

constexpr std::size_t cursors_at_a_time = 64;
// segments that a thread should read at least; for fewer, no thread is started
constexpr std::size_t work_of_a_thread = 16384;

std::int64_t ssize(std::size_t n) { return static_cast<std::int64_t>(n); }

// Checks a segment that the caller has given, and returns its position.
std::size_t checked(std::int64_t segment, std::int64_t size, const char* name) {
    if (segment < 0 || segment >= size) {
        throw Error(std::string(name) + ": there is no segment " + std::to_string(segment) +
                    "; number of segments: " + std::to_string(size));
    }
    return static_cast<std::size_t>(segment);
}

void check_same_lists(std::size_t lists, std::size_t cursors, const char* name) {
    if (lists != cursors) {
        throw Error(std::string(name) + ": must have one list for each of " + std::to_string(cursors) +
                    " cursors, but has " + std::to_string(lists));
    }
}

// Segments and their marks: a hash table that is reused from list to list.
class Known {
  public:
    static constexpr std::uint8_t prior = 1;
    static constexpr std::uint8_t taken = 2;

    // Removes all segments, and makes room for this many. The table grows if there are more.
    void start(std::size_t most) {
        count_ = 0;
        clear(most == 0 ? 0 : std::bit_ceil(most * 2));
    }

    // Adds a mark. Returns the marks from before.
    std::uint8_t add(std::int64_t segment, std::uint8_t mark) {
        if (count_ * 2 >= used_) {
            grow();
        }
        Slot& slot = slots_[find(segment)];
        const std::uint8_t before = slot.marks;
        count_ += before == 0 ? 1 : 0;
        slot = {segment, static_cast<std::uint8_t>(before | mark)};
        return before;
    }

    [[nodiscard]] std::uint8_t marks(std::int64_t segment) const {
        return count_ == 0 ? std::uint8_t{0} : slots_[find(segment)].marks;
    }

    void trim() { pyfast::trim(slots_); }

  private:
    struct Slot {
        std::int64_t segment;
        std::uint8_t marks;  // 0: a free slot
    };

    void clear(std::size_t slots) {
        used_ = slots;
        if (slots_.size() < used_) {
            slots_.resize(used_);
        }
        std::fill_n(slots_.begin(), used_, Slot{-1, 0});
    }

    void grow() {
        const std::vector<Slot> before(slots_.begin(), slots_.begin() + ssize(used_));
        clear(std::max<std::size_t>(used_ * 2, 16));
        for (const Slot& slot : before) {
            if (slot.marks != 0) {
                slots_[find(slot.segment)] = slot;
            }
        }
    }

    [[nodiscard]] std::size_t find(std::int64_t segment) const {
        const std::uint64_t mixed = static_cast<std::uint64_t>(segment) * 0x9E3779B97F4A7C15U;
        std::size_t at = static_cast<std::size_t>(mixed >> 32) & (used_ - 1);
        while (slots_[at].marks != 0 && slots_[at].segment != segment) {
            at = (at + 1) & (used_ - 1);
        }
        return at;
    }

    std::vector<Slot> slots_;
    std::size_t used_ = 0;   // the number of slots: a power of two, or 0
    std::size_t count_ = 0;  // the number of segments in them
};

void check_stream(const Stream& stream) {
    if (stream.order.segments.size() > static_cast<std::size_t>(std::max<std::int64_t>(stream.size, 0))) {
        throw Error("order: has " + std::to_string(stream.order.segments.size()) +
                    " segments, but the corpus has " + std::to_string(stream.size));
    }
    const auto& [mask, live] = stream.tombstones;
    if (stream.size != 0 &&
        (mask.empty() != live.empty() || (!mask.empty() && ssize(mask.size()) != stream.size))) {
        throw Error("tombstones: the mask must have one entry for each of " + std::to_string(stream.size) +
                    " segments, and be given together with `live`");
    }
}

// Lists of segments with a copy of their offsets, which no other thread can change.
class Lists {
  public:
    Lists(const Ragged<std::int64_t>& given, const char* name)
        : offsets_(checked_offsets(given.offsets, given.values.size(), name)), values_(given.values) {}

    [[nodiscard]] std::size_t size() const { return offsets_.size() - 1; }
    [[nodiscard]] Segments operator[](std::size_t c) const { return Ragged<std::int64_t>{offsets_, values_}[c]; }

  private:
    std::vector<std::int64_t> offsets_;
    Segments values_;
};

// A stream and its cursors. Lengths and offsets are checked at once, segments when they are read.
class Walk {
  public:
    Walk(const Stream& stream, const Cursors& cursors)
        : stream_(stream),
          cursors_(cursors),
          selected_(cursors.selected, "selected"),
          prior_(cursors.prior, "priors"),
          live_(stream.tombstones.live, stream.order.segments.size()) {
        check_stream(stream);
        check_same_lists(selected_.size(), cursors.place.size(), "selected");
        check_same_lists(prior_.size(), cursors.place.size(), "priors");
    }

    [[nodiscard]] Segments selected(std::size_t c) const { return selected_[c]; }

    // Fills the table with the segments of cursor c, and makes room for `more` segments.
    void know(Known& known, std::size_t c, std::size_t more) const {
        const Segments prior = prior_[c];
        const Segments selected = selected_[c];
        known.start(prior.size() + selected.size() + more);
        for (const std::int64_t segment : prior) {
            checked(segment, stream_.size, "priors");
            if (known.add(segment, Known::prior) != 0) {
                throw Error("priors: segment " + std::to_string(segment) + " occurs twice for cursor " +
                            std::to_string(c));
            }
        }
        for (const std::int64_t segment : selected) {
            checked(segment, stream_.size, "selected");
            known.add(segment, Known::taken);
        }
    }

    // Calls take(segment) for the first `width` segments in the window of cursor c. Returns the place behind the
    // last one.
    template <class Take>
    std::int64_t walk(const Known& known, std::size_t c, std::int64_t width, const Take& take) const {
        const Segments prior = prior_[c];
        const Segments order = stream_.order.segments;
        const std::int64_t from = cursors_.place[c];
        if (from < 0 || from > ssize(prior.size() + order.size())) {
            throw Error("place: " + std::to_string(from) + " is outside the stream of cursor " +
                        std::to_string(c));
        }
        std::int64_t room = width;
        auto place = static_cast<std::size_t>(from);
        for (; place < prior.size(); ++place) {
            if (room == 0) {
                return ssize(place);
            }
            const std::int64_t segment = prior[place];
            checked(segment, stream_.size, "priors");
            const auto& mask = stream_.tombstones.mask;
            if ((known.marks(segment) & Known::taken) == 0 &&
                (mask.empty() || mask[static_cast<std::size_t>(segment)] == 0)) {
                take(segment);
                --room;
            }
        }
        std::size_t in_order = place - prior.size();
        while (room > 0) {
            in_order = live_.next(in_order);
            if (in_order >= order.size()) {
                break;
            }
            const std::int64_t segment = order[in_order++];
            checked(segment, stream_.size, "order");
            if (known.marks(segment) == 0) {
                take(segment);
                --room;
            }
        }
        return ssize(prior.size() + in_order);
    }

    [[nodiscard]] std::size_t size() const { return cursors_.place.size(); }

    // The approximate number of segments that are read if each cursor sees `width`.
    [[nodiscard]] std::size_t work(std::int64_t width) const {
        const auto most = std::min(static_cast<std::size_t>(width), work_of_a_thread);
        return size() * most + cursors_.selected.values.size() + cursors_.prior.values.size();
    }

  private:
    const Stream& stream_;
    const Cursors& cursors_;
    Lists selected_;
    Lists prior_;
    LivePlaces<const std::uint64_t> live_;
};

// The lists that make(known, c, list) appends, for c in 0..n-1.
template <class Make>
SegmentLists each_list(std::size_t n, std::size_t work, int threads, const Make& make) {
    SegmentLists lists;
    lists.offsets.resize(n + 1);
    std::vector<std::vector<std::int64_t>> blocks((n + cursors_at_a_time - 1) / cursors_at_a_time);
    const auto useful = static_cast<int>(std::min<std::size_t>(1 + work / work_of_a_thread, blocks.size()));
    parallel_for(
        blocks.size(), std::min(threads, useful), 1, [] { return Reused<Known>(); },
        [&](Reused<Known>& known, std::size_t b) {
            for (std::size_t c = b * cursors_at_a_time; c < std::min(n, (b + 1) * cursors_at_a_time); ++c) {
                const std::size_t before = blocks[b].size();
                make(*known, c, blocks[b]);
                lists.offsets[c + 1] = ssize(blocks[b].size() - before);
            }
        });
    for (std::size_t c = 0; c < n; ++c) {
        lists.offsets[c + 1] += lists.offsets[c];
    }
    lists.segments = Buffer<std::int64_t>(static_cast<std::size_t>(lists.offsets.back()));
    std::int64_t* out = lists.segments.data.get();
    for (const auto& block : blocks) {
        out = std::copy(block.begin(), block.end(), out);
    }
    return lists;
}

// Where each level starts in the order.
std::vector<std::int64_t> checked_starts(const Order& order) {
    if (order.starts.size() > levels + 1) {
        throw Error("order: expected at most " + std::to_string(levels) + " levels");
    }
    return checked_offsets(order.starts, order.segments.size(), "order");
}

// The columns of the hierarchy. Each entry is checked when it is read.
class Tree {
  public:
    explicit Tree(const Hierarchy& hierarchy) : columns_(hierarchy), size_(ssize(hierarchy.level.size())) {
        if (ssize(hierarchy.parent.size()) != size_ || ssize(hierarchy.subtree_end.size()) != size_) {
            throw Error("parent, subtree_end: must have one entry for each of " + std::to_string(size_) +
                        " segments");
        }
    }

    [[nodiscard]] std::int64_t size() const { return size_; }

    [[nodiscard]] bool is(std::int64_t i, Level level) const {
        return columns_.level[static_cast<std::size_t>(i)] == static_cast<std::uint8_t>(level);
    }

    [[nodiscard]] std::int64_t end(std::int64_t i) const {
        const std::int64_t end = columns_.subtree_end[static_cast<std::size_t>(i)];
        if (end <= i || end > size_) {
            throw Error("subtree_end: segment " + std::to_string(i) + " of " + std::to_string(size_) +
                        " cannot end at " + std::to_string(end));
        }
        return end;
    }

    [[nodiscard]] std::int64_t parent(std::int64_t i) const {
        const std::int64_t parent = columns_.parent[static_cast<std::size_t>(i)];
        if (parent < -1 || parent >= i) {
            throw Error("parent: segment " + std::to_string(i) + " cannot have parent " + std::to_string(parent));
        }
        return parent;
    }

    // The parent, which must have this level.
    [[nodiscard]] std::int64_t parent(std::int64_t i, Level level) const {
        const std::int64_t above = parent(i);
        if (above < 0 || !is(above, level)) {
            throw Error("parent: the parent of segment " + std::to_string(i) + " must have level " +
                        std::to_string(static_cast<int>(level)));
        }
        return above;
    }

    // Calls take(child) until it returns false.
    template <class Take>
    void children(std::int64_t i, const Take& take) const {
        const std::int64_t last = end(i);
        for (std::int64_t child = i + 1; child < last; child = end(child)) {
            if (parent(child) != i) {
                throw Error("subtree_end: segment " + std::to_string(child) + " is inside segment " +
                            std::to_string(i) + ", but has another parent");
            }
            if (!take(child)) {
                return;
            }
        }
    }

    template <class Take>
    void neighbors(std::int64_t i, Neighbors kind, const Take& take) const {
        const auto others = [&](std::int64_t child) { return child == i || take(child); };
        switch (kind) {
            case Neighbors::children: children(i, take); break;
            case Neighbors::parent:
                if (parent(i) >= 0) {
                    take(parent(i));
                }
                break;
            case Neighbors::row:
                if (is(i, Level::table_cell)) {
                    children(parent(i, Level::table_row), others);
                }
                break;
            case Neighbors::column:
                if (is(i, Level::table_cell)) {
                    column(i, others);
                }
                break;
            case Neighbors::relation:
                if (is(i, Level::triplet)) {
                    children(parent(i, Level::subgraph), others);
                }
                break;
        }
    }

  private:
    // Cells have no children, so the k-th cell of a row is k positions behind the first one.
    template <class Take>
    void column(std::int64_t cell, const Take& take) const {
        const std::int64_t own = parent(cell, Level::table_row);
        children(parent(own, Level::table), [&](std::int64_t row) {
            const std::int64_t there = row + (cell - own);
            if (there >= end(row)) {
                return true;
            }
            if (parent(there) != row || !is(there, Level::table_cell)) {
                throw Error("parent: segment " + std::to_string(there) + " is not a cell of row " +
                            std::to_string(row));
            }
            return take(there);
        });
    }

    const Hierarchy& columns_;
    std::int64_t size_;
};

// Walks through the sequence and tracks the open segments. close(i, end) reports the end of each one.
template <class Close>
void close_each(const Integers& parent, const Close& close) {
    std::vector<std::int64_t> open;
    const std::int64_t n = ssize(parent.size());
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t above = parent[static_cast<std::size_t>(i)];
        while (!open.empty() && open.back() != above) {
            close(open.back(), i);
            open.pop_back();
        }
        if (open.empty() && above != -1) {
            throw Error("parent: segment " + std::to_string(i) + " is not in depth-first order under " +
                        std::to_string(above));
        }
        open.push_back(i);
    }
    for (const std::int64_t i : open) {
        close(i, n);
    }
}

}  // namespace

Buffer<std::int64_t> subtree_ends(const Integers& parent) {
    Buffer<std::int64_t> ends(parent.size());
    const auto out = ends.span();
    close_each(parent, [&](std::int64_t i, std::int64_t end) { out[static_cast<std::size_t>(i)] = end; });
    return ends;
}

void check_subtree_ends(const Integers& parent, const Integers& subtree_end) {
    if (subtree_end.size() != parent.size()) {
        throw Error("subtree_end: must have one entry for each of " + std::to_string(parent.size()) + " segments");
    }
    close_each(parent, [&](std::int64_t i, std::int64_t end) {
        if (subtree_end[static_cast<std::size_t>(i)] != end) {
            throw Error("subtree_end: segment " + std::to_string(i) + " ends at " + std::to_string(end) +
                        ", not at " + std::to_string(subtree_end[static_cast<std::size_t>(i)]));
        }
    });
}

OwnedOrder level_order(std::span<const std::uint8_t> given, std::span<const std::uint8_t> priorities) {
    // A copy, so that the column is counted and written with the same values, even if another thread changes it.
    const std::vector<std::uint8_t> level(given.begin(), given.end());
    const std::vector<std::uint8_t> priority(priorities.begin(), priorities.end());
    std::array<std::size_t, levels> counts{};
    for (std::size_t i = 0; i < level.size(); ++i) {
        if (level[i] >= levels) {
            throw Error("level: segment " + std::to_string(i) + " has level " + std::to_string(level[i]) +
                        "; the highest is " + std::to_string(levels - 1));
        }
        ++counts[level[i]];
    }
    std::array<std::int64_t*, levels> next{};
    OwnedOrder order{{}, {0}};
    std::size_t total = 0;
    for (std::size_t k = 0; k < priority.size(); ++k) {
        if (priority[k] >= levels ||
            std::find(priority.begin(), priority.begin() + ssize(k), priority[k]) != priority.begin() + ssize(k)) {
            throw Error("priority: level " + std::to_string(priority[k]) + " occurs twice or does not exist");
        }
        total += counts[priority[k]];
        order.starts.push_back(ssize(total));
    }
    order.segments = Buffer<std::int64_t>(total);
    for (std::size_t k = 0; k < priority.size(); ++k) {
        next[priority[k]] = order.segments.data.get() + order.starts[k];
    }
    for (std::size_t i = 0; i < level.size(); ++i) {
        if (auto& out = next[level[i]]) {
            *out++ = ssize(i);
        }
    }
    return order;
}

OwnedTombstones mark_deleted(const Order& order, std::span<const std::uint8_t> mask) {
    checked_starts(order);
    const std::size_t places = order.segments.size();
    using Live = LivePlaces<std::uint64_t>;
    OwnedTombstones out{Buffer<std::uint8_t>(mask.size()), Buffer<std::uint64_t>(Live::words(places))};
    std::transform(mask.begin(), mask.end(), out.mask.data.get(),
                   [](std::uint8_t deleted) { return static_cast<std::uint8_t>(deleted != 0); });
    Live live(out.live.span(), places);
    live.fill();
    for (std::size_t p = 0; p < places; ++p) {
        if (mask[checked(order.segments[p], ssize(mask.size()), "order")] != 0) {
            live.clear(p, p + 1);
        }
    }
    return out;
}

OwnedTombstones delete_segments(const Hierarchy& hierarchy, const Order& order, const Tombstones& before,
                                std::span<const std::int64_t> segments) {
    const Tree tree(hierarchy);
    const auto starts = checked_starts(order);
    check_stream({tree.size(), order, before});
    const std::size_t places = order.segments.size();
    using Live = LivePlaces<std::uint64_t>;
    OwnedTombstones out{Buffer<std::uint8_t>(hierarchy.level.size()), Buffer<std::uint64_t>(Live::words(places))};
    const auto mask = out.mask.span();
    Live live(out.live.span(), places);
    if (before.mask.empty()) {
        std::fill(mask.begin(), mask.end(), std::uint8_t{0});
        live.fill();
    } else {
        const LivePlaces<const std::uint64_t> checked_size(before.live, places);
        std::copy(before.mask.begin(), before.mask.end(), mask.begin());
        std::copy(before.live.begin(), before.live.end(), out.live.data.get());
    }
    for (const std::int64_t segment : segments) {
        checked(segment, tree.size(), "segments");
        const std::int64_t end = tree.end(segment);
        std::fill(mask.begin() + segment, mask.begin() + end, std::uint8_t{1});
        // The descendants of one level are contiguous in the order.
        for (std::size_t k = 0; k + 1 < starts.size(); ++k) {
            const auto begin = order.segments.begin();
            const auto low = std::lower_bound(begin + starts[k], begin + starts[k + 1], segment);
            const auto high = std::lower_bound(low, begin + starts[k + 1], end);
            live.clear(static_cast<std::size_t>(low - begin), static_cast<std::size_t>(high - begin));
        }
    }
    return out;
}

SegmentLists window(const Stream& stream, const Cursors& cursors, std::int64_t width, int threads) {
    if (width < 0) {
        throw Error("width: must not be negative");
    }
    const Walk walk(stream, cursors);
    return each_list(walk.size(), walk.work(width), threads, [&](Known& known, std::size_t c, auto& list) {
        walk.know(known, c, 0);
        walk.walk(known, c, width, [&](std::int64_t segment) { list.push_back(segment); });
    });
}

Refreshed refresh(const Stream& stream, const Cursors& cursors, const Ragged<std::int64_t>& chosen,
                  std::int64_t past, int threads) {
    if (past < 0) {
        throw Error("past: must not be negative");
    }
    const Walk walk(stream, cursors);
    const Lists lists(chosen, "chosen");
    check_same_lists(lists.size(), walk.size(), "chosen");
    Refreshed out{Buffer<std::int64_t>(walk.size()), {}};
    const auto place = out.place.span();
    out.selected = each_list(walk.size(), walk.work(past), threads, [&](Known& known, std::size_t c, auto& list) {
        const Segments selected = walk.selected(c);
        walk.know(known, c, lists[c].size());
        place[c] = walk.walk(known, c, past, [](std::int64_t) {});
        list.insert(list.end(), selected.begin(), selected.end());
        for (const std::int64_t segment : lists[c]) {
            checked(segment, stream.size, "chosen");
            if ((known.add(segment, Known::taken) & Known::taken) == 0) {
                list.push_back(segment);
            }
        }
    });
    return out;
}

SegmentLists neighbors(const Hierarchy& hierarchy, std::span<const std::uint8_t> mask,
                       const Ragged<std::int64_t>& segments, const Ragged<std::int64_t>& excluded, Neighbors kind,
                       std::int64_t limit, int threads) {
    const Tree tree(hierarchy);
    const Lists asked(segments, "segments");
    if (!mask.empty() && ssize(mask.size()) != tree.size()) {
        throw Error("tombstones: must have one entry for each of " + std::to_string(tree.size()) + " segments");
    }
    std::optional<Lists> selected;
    if (excluded.size() != 0) {
        check_same_lists(selected.emplace(excluded, "selected").size(), asked.size(), "selected");
    }
    if (limit < 0) {
        throw Error("limit: must not be negative");
    }
    const std::size_t work = 16 * segments.values.size();
    return each_list(asked.size(), work, threads, [&](Known& known, std::size_t g, auto& list) {
        const Segments out = selected ? (*selected)[g] : Segments{};
        known.start(out.size());
        for (const std::int64_t segment : out) {
            checked(segment, tree.size(), "selected");
            known.add(segment, Known::taken);
        }
        const bool may_repeat = asked[g].size() > 1;
        std::int64_t room = limit;
        for (const std::int64_t segment : asked[g]) {
            checked(segment, tree.size(), "segments");
            if (room == 0) {
                continue;
            }
            tree.neighbors(segment, kind, [&](std::int64_t other) {
                if (!mask.empty() && mask[static_cast<std::size_t>(other)] != 0) {
                    return true;
                }
                if ((may_repeat ? known.add(other, Known::taken) : known.marks(other)) == 0) {
                    list.push_back(other);
                    --room;
                }
                return room > 0;
            });
        }
    });
}

}  // namespace pyfast
