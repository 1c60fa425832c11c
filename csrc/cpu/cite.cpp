#include "pyfast/cite.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "checked_offsets.hpp"
#include "pyfast/error.hpp"
#include "pyfast/segment_id.hpp"

namespace pyfast {

namespace {

// The characters that JSON must escape.
constexpr std::array<bool, 256> special = [] {
    std::array<bool, 256> out{};
    std::fill_n(out.begin(), 0x20, true);
    out['"'] = out['\\'] = true;
    return out;
}();

constexpr std::string_view hex_digits = "0123456789abcdef";

// Writes a text as part of a JSON string. The control characters in `blanked` become spaces.
void append_escaped(std::string& out, std::string_view text, std::string_view blanked = {}) {
    std::size_t done = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (!special[byte]) {
            continue;
        }
        out.append(text, done, i - done);
        done = i + 1;
        if (blanked.find(text[i]) != std::string_view::npos) {
            out += ' ';
            continue;
        }
        switch (byte) {
            case '"': out += "\\\""; break;
            case '\\': out += "\\\\"; break;
            case '\b': out += "\\b"; break;
            case '\f': out += "\\f"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            case '\t': out += "\\t"; break;
            default:
                out += "\\u00";
                out += hex_digits[byte >> 4];
                out += hex_digits[byte & 0xF];
        }
    }
    out.append(text, done);
}

void append_hex(std::string& out, std::uint64_t id) {
    for (int shift = 60; shift >= 0; shift -= 4) {
        out += hex_digits[(id >> shift) & 0xF];
    }
}

// Writes up to `most` digits after the point, without trailing zeros except the first digit, as Python prints
// round(score, most).
void append_score(std::string& out, double score, int most) {
    if (!std::isfinite(score)) {
        out += "null";
        return;
    }
    std::array<char, 328> digits;  // the largest double has 309 digits before the point
    const auto written =
        std::to_chars(digits.data(), digits.data() + digits.size(), score, std::chars_format::fixed, most);
    std::string_view text(digits.data(), written.ptr);
    text = text.substr(0, text.find_last_not_of('0') + 1);
    out.append(text).append(text.back() == '.' ? "0" : "");
}

std::size_t checked_segment(const Segments& s, std::int64_t segment) {
    if (segment < 0 || segment >= static_cast<std::int64_t>(s.level.size())) {
        throw Error("segments: there is no segment " + std::to_string(segment) + "; the corpus has " +
                    std::to_string(s.level.size()));
    }
    return static_cast<std::size_t>(segment);
}

// The number of a segment among the segments that are triples.
std::size_t triplet(const Segments& s, std::size_t i) {
    const auto found = std::lower_bound(s.triplets.begin(), s.triplets.end(), static_cast<std::int64_t>(i));
    if (found == s.triplets.end() || *found != static_cast<std::int64_t>(i)) {
        throw Error("triplets: segment " + std::to_string(i) + " is missing");
    }
    return static_cast<std::size_t>(found - s.triplets.begin());
}

std::uint64_t id(const Segments& s, std::size_t i) {
    const auto document = static_cast<std::size_t>(s.source[i]);
    if (document >= s.hashes.size()) {
        throw Error("source: there is no document " + std::to_string(s.source[i]));
    }
    const auto level = static_cast<Level>(s.level[i]);
    if (level != Level::subgraph && level != Level::triplet) {
        return segment_id(s.hashes[document], s.level[i], s.start[i], s.end[i]);
    }
    const std::int64_t ordinal = s.ordinal[triplet(s, level == Level::triplet ? i : i + 1)];
    return segment_id(s.hashes[document], s.level[i], ordinal, -1);
}

class Writer {
  public:
    Writer(const Segments& segments, std::string& out) : segments_(segments), out_(out) {}

    // Writes the beginning of an object. Returns the segment's index.
    std::size_t name(std::int64_t segment) {
        const std::size_t i = checked_segment(segments_, segment);
        const auto uri = checked_list(segments_.uris, segments_.source[i], "uri_offsets, source");
        out_ += "{\"segment\":\"";
        append_hex(out_, id(segments_, i));
        out_ += "\",\"uri\":\"";
        append_escaped(out_, {reinterpret_cast<const char*>(uri.data()), uri.size()});
        out_ += '"';
        return i;
    }

    void evidence(std::int64_t segment, double score, std::string_view members) {
        const std::size_t i = name(segment);
        out_ += ",\"offsets\":[" + std::to_string(segments_.start[i]) + "," + std::to_string(segments_.end[i]);
        out_ += "],\"snippet\":\"";
        snippet(i);
        out_ += "\",\"score\":";
        append_score(out_, score, 6);
        if (!members.empty()) {
            out_ += ',';
            out_ += members;
        }
        out_ += '}';
    }

  private:
    [[nodiscard]] std::size_t size() const { return segments_.level.size(); }

    [[nodiscard]] bool is(std::size_t i, Level level) const { return i < size() && at(i) == level; }

    [[nodiscard]] Level at(std::size_t i) const { return static_cast<Level>(segments_.level[i]); }

    void snippet(std::size_t i) {
        switch (at(i)) {
            case Level::table:
                for (std::size_t row = i + 1; is(row, Level::table_row);) {
                    out_ += row > i + 1 ? "\\n" : "";
                    row = cells(row, "\t\r\n");
                }
                break;
            case Level::table_row: cells(i, "\t"); break;
            case Level::subgraph: triples(i); break;
            case Level::triplet: triple(i); break;
            default:
                if (is(i, Level::document) && is(i + 1, Level::subgraph)) {
                    triples(i);
                } else {
                    content(segments_.byte_start[i], segments_.byte_end[i]);
                }
        }
    }

    // Writes the cells of a row, with spaces for the `separators` in them. Returns the position where the next row
    // would start.
    std::size_t cells(std::size_t row, std::string_view separators) {
        std::size_t cell = row + 1;
        for (; is(cell, Level::table_cell); ++cell) {
            out_ += cell > row + 1 ? "\\t" : "";
            content(segments_.byte_start[cell], segments_.byte_end[cell], separators);
        }
        return cell;
    }

    // Writes the triples of a subgraph, or of all subgraphs of a document.
    void triples(std::size_t parent) {
        const bool all = is(parent, Level::document);
        bool several = false;
        for (std::size_t i = parent + 1; is(i, Level::triplet) || (all && is(i, Level::subgraph)); ++i) {
            if (is(i, Level::triplet)) {
                out_ += several ? "; " : "";
                triple(i);
                several = true;
            }
        }
    }

    void triple(std::size_t i) {
        const std::size_t k = triplet(segments_, i);
        content(segments_.byte_start[i], segments_.relation_start[k]);
        out_ += ' ';
        content(segments_.relation_start[k], segments_.tail_start[k]);
        out_ += ' ';
        content(segments_.tail_start[k], segments_.byte_end[i]);
    }

    void content(std::int64_t first, std::int64_t last, std::string_view blanked = {}) {
        if (first < 0 || last < first || last > static_cast<std::int64_t>(segments_.content.size())) {
            throw Error("content: a segment starts at byte " + std::to_string(first) + " and ends at " +
                        std::to_string(last) + "; number of bytes: " + std::to_string(segments_.content.size()));
        }
        const auto bytes =
            segments_.content.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
        append_escaped(out_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, blanked);
    }

    const Segments& segments_;
    std::string& out_;
};

void check_sizes(std::initializer_list<std::size_t> sizes, std::size_t n) {
    if (std::any_of(sizes.begin(), sizes.end(), [n](std::size_t size) { return size != n; })) {
        throw Error("segments: every column must hold one value per segment");
    }
}

void check_columns(const Segments& s) {
    check_sizes({s.source.size(), s.start.size(), s.end.size(), s.byte_start.size(), s.byte_end.size()},
                s.level.size());
    if (s.hashes.size() + 1 != s.uris.offsets.size()) {
        throw Error("uri_offsets: must hold one more number than there are hashes");
    }
    if (s.ordinal.size() != s.triplets.size() || s.relation_start.size() != s.triplets.size() ||
        s.tail_start.size() != s.triplets.size()) {
        throw Error("triplets, ordinal, relation_start, tail_start: must hold one value per triplet");
    }
}

void check_id_columns(const Segments& s) {
    check_sizes({s.source.size(), s.start.size(), s.end.size()}, s.level.size());
    if (s.ordinal.size() != s.triplets.size()) {
        throw Error("triplets, ordinal: must hold one value per triplet");
    }
}

// Writes a JSON array for each list. `write(v)` writes item v.
template <class Write>
void write_lists(Texts& out, std::span<const std::int64_t> offsets, const Write& write) {
    for (std::size_t p = 0; p + 1 < offsets.size(); ++p) {
        const auto first = static_cast<std::size_t>(offsets[p]);
        const auto last = static_cast<std::size_t>(offsets[p + 1]);
        out.bytes += '[';
        for (std::size_t v = first; v < last; ++v) {
            out.bytes += v > first ? "," : "";
            write(v);
        }
        out.bytes += ']';
        out.end_text();
    }
}

}  // namespace

Texts cite(const Segments& segments, const Ragged<std::int64_t>& cited, std::span<const double> scores,
           std::span<const std::string> members, std::span<const std::int32_t> member_of) {
    check_columns(segments);
    const auto offsets = checked_offsets(cited.offsets, cited.values.size(), "offsets");
    if (scores.size() != cited.values.size()) {
        throw Error("scores: must hold one number per cited segment");
    }
    if (!member_of.empty() && member_of.size() != cited.values.size()) {
        throw Error("member_of: must hold one number per cited segment");
    }
    const auto members_of = [&](std::size_t v) -> std::string_view {
        if (member_of.empty() || member_of[v] == -1) {
            return {};
        }
        const auto m = static_cast<std::size_t>(member_of[v]);
        if (m >= members.size()) {
            throw Error("member_of: there is no member " + std::to_string(member_of[v]) +
                        "; number of members: " + std::to_string(members.size()));
        }
        return members[m];
    };
    Texts out;
    Writer writer(segments, out.bytes);
    write_lists(out, offsets, [&](std::size_t v) { writer.evidence(cited.values[v], scores[v], members_of(v)); });
    return out;
}

Texts list_segments(const Segments& segments, const Ragged<std::int64_t>& listed,
                    std::span<const std::string> names, std::span<const float> scores) {
    check_id_columns(segments);
    if (segments.hashes.size() + 1 != segments.uris.offsets.size()) {
        throw Error("uri_offsets: must hold one more number than there are hashes");
    }
    const auto offsets = checked_offsets(listed.offsets, listed.values.size(), "offsets");
    const std::size_t n = listed.values.size();
    if (scores.size() != names.size() * n) {
        throw Error("scores: must hold one number for each pair of a name and a listed segment");
    }
    std::vector<std::string> keys;
    for (const std::string& name : names) {
        keys.emplace_back(",\"");
        append_escaped(keys.back(), name);
        keys.back() += "\":";
    }
    Texts out;
    Writer writer(segments, out.bytes);
    write_lists(out, offsets, [&](std::size_t v) {
        writer.name(listed.values[v]);
        for (std::size_t k = 0; k < keys.size(); ++k) {
            out.bytes += keys[k];
            append_score(out.bytes, static_cast<double>(scores[k * n + v]), 4);
        }
        out.bytes += '}';
    });
    return out;
}

std::vector<std::uint64_t> segment_ids(const Segments& segments, std::span<const std::int64_t> which) {
    check_id_columns(segments);
    std::vector<std::uint64_t> ids;
    ids.reserve(which.size());
    for (const std::int64_t segment : which) {
        ids.push_back(id(segments, checked_segment(segments, segment)));
    }
    return ids;
}

}  // namespace pyfast
