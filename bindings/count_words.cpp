#include "pyfast/count_words.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "arrays.hpp"

namespace pyfast::python {

namespace {

// By code point: 1 for letters and digits, 2 for combining characters.
const std::vector<std::uint8_t>& word_characters() {
    static const std::vector<std::uint8_t> table = [] {
        const py::object category = py::module_::import("unicodedata").attr("category");
        std::vector<std::uint8_t> made(0x110000);
        for (std::size_t code = 0; code < made.size(); ++code) {
            const auto character = static_cast<Py_UCS4>(code);
            if (Py_UNICODE_ISALNUM(character)) {
                made[code] = 1;
            } else if (code >= 0x300 && Py_UNICODE_ISPRINTABLE(character)) {
                const py::str written =
                    py::reinterpret_steal<py::str>(PyUnicode_FromOrdinal(static_cast<int>(code)));
                made[code] = py::cast<std::string>(category(written)).front() == 'M' ? 2 : 0;
            }
        }
        return made;
    }();
    return table;
}

// Every character except the blank. Surrogates are not characters.
const std::vector<std::uint8_t>& separated_characters() {
    static const std::vector<std::uint8_t> table = [] {
        std::vector<std::uint8_t> made(0x110000, 1);
        made[' '] = 0;
        std::fill(made.begin() + 0xD800, made.begin() + 0xE000, std::uint8_t{0});
        return made;
    }();
    return table;
}

}  // namespace

void bind_count_words(py::module_& m) {
    m.def(
        "count_words",
        [](const py::array& text_offsets, const py::array& bytes, bool separated) {
            const auto texts = ragged<std::uint8_t>(text_offsets, bytes, "texts");
            const auto& in_words = separated ? separated_characters() : word_characters();
            WordCounts found;
            {
                const py::gil_scoped_release release;
                found = count_words(texts, in_words, separated ? 1 : 2);
            }
            return py::make_tuple(copy(found.offsets), copy(found.words), copy(found.counts),
                                  list<py::str>(found.vocabulary));
        },
        py::arg("text_offsets"), py::arg("bytes"), py::arg("separated"));
}

}  // namespace pyfast::python
