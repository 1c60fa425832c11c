#include "maxsim_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "multiversion.hpp"

// Compilers do not generate these instructions from portable code, so the functions use intrinsics instead of
// multiversion.hpp, and the level is looked up at each call.
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define PYFAST_MAXSIM_X86
#endif

namespace pyfast::maxsim_rows {

namespace {

typedef float Floats [[gnu::vector_size(64)]];

constexpr float none = -std::numeric_limits<float>::infinity();
constexpr std::size_t step = 32;  // dimensions that are added up together, on each level

// The sum of the lanes: adds the two halves until one lane is left.
inline float total(float* sums) {
    for (std::size_t half = step / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) {
            sums[i] += sums[i + half];
        }
    }
    return sums[0];
}

// Calls add(query, codes) for each step of dimensions. Lanes beyond the last dimension are zero in the query.
template <class Add>
[[gnu::always_inline]] inline void each_step(const float* query, const std::uint8_t* codes, std::size_t dimensions,
                                             const Add& add) {
    std::size_t d = 0;
    for (; d + step <= dimensions; d += step) {
        add(query + d, codes + d);
    }
    if (d < dimensions) {
        float numbers[step] = {};
        std::uint8_t rest[step] = {};
        std::copy_n(query + d, dimensions - d, numbers);
        std::copy_n(codes + d, dimensions - d, rest);
        add(numbers, rest);
    }
}

void multiply_portable(const Chosen& chosen, float* products) {
    for (std::size_t t = 0; t < chosen.tokens; ++t) {
        float sums[step] = {};
        const std::uint8_t* const codes =
            chosen.document + static_cast<std::size_t>(chosen.places[t]) * chosen.width;
        each_step(chosen.query + t * chosen.dimensions, codes, chosen.dimensions,
                  [&](const float* query, const std::uint8_t* token) {
                      for (std::size_t i = 0; i < step; ++i) {
                          sums[i] += query[i] * static_cast<float>(token[i] - 128);
                      }
                  });
        products[t] = total(sums);
    }
}

PYFAST_MULTIVERSION
void choose_portable(const Codes& codes, std::int32_t* chosen) {
    const std::size_t width = 4 * codes.groups;
    for (std::size_t tile = 0; tile < codes.tiles; ++tile) {
        float best[lanes];
        std::fill(best, best + lanes, none);
        std::int32_t* const places = chosen + tile * lanes;
        for (std::size_t t = 0; t < codes.tokens; ++t) {
            std::int32_t sums[lanes];
            std::copy_n(codes.shift + tile * lanes, lanes, sums);
            const std::int8_t* query = codes.query + tile * lanes * width;
            const std::uint8_t* document = codes.document + t * width;
            for (std::size_t g = 0; g < codes.groups; ++g, query += 4 * lanes, document += 4) {
                for (std::size_t lane = 0; lane < lanes; ++lane) {
                    for (std::size_t d = 0; d < 4; ++d) {
                        sums[lane] += query[4 * lane + d] * document[d];
                    }
                }
            }
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const float product = static_cast<float>(sums[lane]) * codes.scales[t];
                if (product > best[lane]) {
                    best[lane] = product;
                    places[lane] = static_cast<std::int32_t>(t);
                }
            }
        }
    }
}

#ifdef PYFAST_MAXSIM_X86

#define PYFAST_AVX2 __attribute__((target("avx2")))
#define PYFAST_AVX512 __attribute__((target("avx512f,avx512bw")))
#define PYFAST_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))

inline std::int32_t four(const std::uint8_t* codes) {
    std::int32_t out = 0;
    std::memcpy(&out, codes, sizeof out);
    return out;
}

PYFAST_AVX2 void multiply_avx2(const Chosen& chosen, float* products) {
    const __m256i shift = _mm256_set1_epi32(128);
    for (std::size_t t = 0; t < chosen.tokens; ++t) {
        __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
        const std::uint8_t* const codes =
            chosen.document + static_cast<std::size_t>(chosen.places[t]) * chosen.width;
        each_step(chosen.query + t * chosen.dimensions, codes, chosen.dimensions,
                  [&](const float* query, const std::uint8_t* token) PYFAST_AVX2 {
#pragma GCC unroll 4
                      for (std::size_t i = 0; i < 4; ++i) {
                          const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(token + 8 * i));
                          const __m256i own = _mm256_sub_epi32(_mm256_cvtepu8_epi32(bytes), shift);
                          sums[i] = _mm256_add_ps(
                              sums[i], _mm256_mul_ps(_mm256_loadu_ps(query + 8 * i), _mm256_cvtepi32_ps(own)));
                      }
                  });
        float lanes_of[step];
        for (std::size_t i = 0; i < 4; ++i) {
            _mm256_storeu_ps(lanes_of + 8 * i, sums[i]);
        }
        products[t] = total(lanes_of);
    }
}

PYFAST_AVX2 void choose_avx2(const Codes& codes, std::int32_t* chosen) {
    constexpr std::size_t rows = 4;
    const std::size_t width = 4 * codes.groups;
    const __m256i ones = _mm256_set1_epi16(1);
    for (std::size_t tile = 0; tile < codes.tiles; ++tile) {
        const std::int8_t* const query = codes.query + tile * lanes * width;
        const auto* const shift = reinterpret_cast<const __m256i*>(codes.shift + tile * lanes);
        __m256 best[2] = {_mm256_set1_ps(none), _mm256_set1_ps(none)};
        __m256i places[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (std::size_t t = 0; t < codes.tokens; t += rows) {
            const std::uint8_t* const document = codes.document + t * width;
            __m256i sums[rows][2];
#pragma GCC unroll 4
            for (std::size_t r = 0; r < rows; ++r) {
                sums[r][0] = _mm256_loadu_si256(shift);
                sums[r][1] = _mm256_loadu_si256(shift + 1);
            }
            for (std::size_t g = 0; g < codes.groups; ++g) {
                const auto* const at = reinterpret_cast<const __m256i*>(query + 4 * lanes * g);
                const __m256i low = _mm256_loadu_si256(at);
                const __m256i high = _mm256_loadu_si256(at + 1);
#pragma GCC unroll 4
                for (std::size_t r = 0; r < rows; ++r) {
                    const __m256i token = _mm256_set1_epi32(four(document + r * width + 4 * g));
                    sums[r][0] =
                        _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(_mm256_maddubs_epi16(token, low), ones));
                    sums[r][1] =
                        _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(_mm256_maddubs_epi16(token, high), ones));
                }
            }
#pragma GCC unroll 4
            for (std::size_t r = 0; r < rows; ++r) {
                const __m256 scale = _mm256_set1_ps(codes.scales[t + r]);
                const __m256i place = _mm256_set1_epi32(static_cast<int>(t + r));
                for (std::size_t half = 0; half < 2; ++half) {
                    const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r][half]), scale);
                    const __m256 larger = _mm256_cmp_ps(product, best[half], _CMP_GT_OQ);
                    best[half] = _mm256_blendv_ps(best[half], product, larger);
                    places[half] = _mm256_blendv_epi8(places[half], place, _mm256_castps_si256(larger));
                }
            }
        }
        auto* const out = reinterpret_cast<__m256i*>(chosen + tile * lanes);
        _mm256_storeu_si256(out, places[0]);
        _mm256_storeu_si256(out + 1, places[1]);
    }
}

// The same for AVX-512 with and without VNNI: `add` adds four products to the sum of each lane. A macro, because a
// function's target cannot be a template parameter.
#define PYFAST_CHOOSE_AVX512(name, target, add)                                                                \
    template <std::size_t tiles, std::size_t rows>                                                             \
    target void name##_tiles(const Codes& codes, std::size_t tile, std::int32_t* chosen) {                     \
        const std::size_t width = 4 * codes.groups;                                                            \
        const std::int8_t* const query = codes.query + tile * lanes * width;                                   \
        __m512 best[tiles];                                                                                    \
        __m512i places[tiles];                                                                                 \
        for (std::size_t i = 0; i < tiles; ++i) {                                                              \
            best[i] = _mm512_set1_ps(none);                                                                    \
            places[i] = _mm512_setzero_si512();                                                                \
        }                                                                                                      \
        for (std::size_t t = 0; t < codes.tokens; t += rows) {                                                 \
            const std::uint8_t* const document = codes.document + t * width;                                   \
            __m512i sums[rows][tiles];                                                                         \
            _Pragma("GCC unroll 12") for (std::size_t r = 0; r < rows; ++r) {                                  \
                _Pragma("GCC unroll 2") for (std::size_t i = 0; i < tiles; ++i) {                              \
                    sums[r][i] = _mm512_loadu_si512(codes.shift + (tile + i) * lanes);                         \
                }                                                                                              \
            }                                                                                                  \
            for (std::size_t g = 0; g < codes.groups; ++g) {                                                   \
                __m512i own[tiles];                                                                            \
                _Pragma("GCC unroll 2") for (std::size_t i = 0; i < tiles; ++i) {                              \
                    own[i] = _mm512_loadu_si512(query + (i * codes.groups + g) * 4 * lanes);                   \
                }                                                                                              \
                _Pragma("GCC unroll 12") for (std::size_t r = 0; r < rows; ++r) {                              \
                    const __m512i token = _mm512_set1_epi32(four(document + r * width + 4 * g));               \
                    _Pragma("GCC unroll 2") for (std::size_t i = 0; i < tiles; ++i) {                          \
                        sums[r][i] = add(sums[r][i], token, own[i]);                                           \
                    }                                                                                          \
                }                                                                                              \
            }                                                                                                  \
            _Pragma("GCC unroll 12") for (std::size_t r = 0; r < rows; ++r) {                                  \
                const __m512 scale = _mm512_set1_ps(codes.scales[t + r]);                                      \
                const __m512i place = _mm512_set1_epi32(static_cast<int>(t + r));                              \
                _Pragma("GCC unroll 2") for (std::size_t i = 0; i < tiles; ++i) {                              \
                    const __m512 product = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xFFFF, sums[r][i]), scale); \
                    const __mmask16 larger = _mm512_cmp_ps_mask(product, best[i], _CMP_GT_OQ);                 \
                    best[i] = _mm512_mask_mov_ps(best[i], larger, product);                                    \
                    places[i] = _mm512_mask_mov_epi32(places[i], larger, place);                               \
                }                                                                                              \
            }                                                                                                  \
        }                                                                                                      \
        for (std::size_t i = 0; i < tiles; ++i) {                                                              \
            _mm512_storeu_si512(chosen + (tile + i) * lanes, places[i]);                                       \
        }                                                                                                      \
    }                                                                                                          \
    void name(const Codes& codes, std::int32_t* chosen) {                                                      \
        std::size_t tile = 0;                                                                                  \
        for (; tile + 2 <= codes.tiles; tile += 2) {                                                           \
            name##_tiles<2, 6>(codes, tile, chosen);                                                           \
        }                                                                                                      \
        if (tile < codes.tiles) {                                                                              \
            name##_tiles<1, 12>(codes, tile, chosen);                                                          \
        }                                                                                                      \
    }
#define PYFAST_ADD_BY_PAIRS(sum, token, query) \
    _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(token, query), _mm512_set1_epi16(1)))

PYFAST_CHOOSE_AVX512(choose_avx512, PYFAST_AVX512, PYFAST_ADD_BY_PAIRS)
PYFAST_CHOOSE_AVX512(choose_vnni, PYFAST_VNNI, _mm512_dpbusd_epi32)

#endif

using Choose = void (*)(const Codes&, std::int32_t*);

using Multiply = void (*)(const Chosen&, float*);

// Null if the processor lacks the level.
Choose kernel(MaxsimLevel level) {
    switch (level) {
        case MaxsimLevel::portable: return choose_portable;
#ifdef PYFAST_MAXSIM_X86
        case MaxsimLevel::avx2: return __builtin_cpu_supports("avx2") ? choose_avx2 : nullptr;
        case MaxsimLevel::avx512: return __builtin_cpu_supports("avx512bw") ? choose_avx512 : nullptr;
        case MaxsimLevel::avx512_vnni:
            return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni") ? choose_vnni
                                                                                              : nullptr;
#endif
        default: return nullptr;
    }
}

[[gnu::always_inline]] inline void read(const float* x, Floats& out) { std::memcpy(&out, x, sizeof out); }

// The tokens t to t + rows of one tile.
template <std::size_t rows>
[[gnu::always_inline]] inline void largest_of(const float* query, std::size_t dimensions, const float* document,
                                              Floats& best, Floats& poison) {
    Floats sums[rows] = {};
    for (std::size_t d = 0; d < dimensions; ++d) {
        Floats own;
        read(query + d * lanes, own);
        for (std::size_t r = 0; r < rows; ++r) {
            sums[r] += own * document[r * dimensions + d];
        }
    }
    for (std::size_t r = 0; r < rows; ++r) {
        best = sums[r] > best ? sums[r] : best;
        poison += sums[r] * 0.0f;
    }
}

}  // namespace

bool has(MaxsimLevel level) { return kernel(level) != nullptr; }

// Without the sign, the bits of numbers are ordered as the numbers are, and NaN comes last. So no branch is
// needed, and the result shows a NaN.
PYFAST_MULTIVERSION
float magnitude(const float* numbers, std::size_t n) {
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
        most = std::max(most, std::bit_cast<std::uint32_t>(numbers[i]) & 0x7FFFFFFFU);
    }
    return std::bit_cast<float>(most);
}

PYFAST_MULTIVERSION
std::int32_t round(const float* numbers, std::size_t n, std::int8_t* codes) {
    // Half of the largest sum of two neighbours with the same sign, compared by bits as in `magnitude`. It is at
    // least half of each number. max(0, -0) is 0: the bits of -0 would be the largest.
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i + 1 < n; i += 2) {
        const float a = 0.5f * numbers[i];
        const float b = 0.5f * numbers[i + 1];
        const float positive = std::max(0.0f, a) + std::max(0.0f, b);
        const float negative = std::max(0.0f, -a) + std::max(0.0f, -b);
        bits = std::max(bits,
                        std::max(std::bit_cast<std::uint32_t>(positive), std::bit_cast<std::uint32_t>(negative)));
    }
    if (n % 2 != 0) {
        bits = std::max(bits, std::bit_cast<std::uint32_t>(0.5f * std::fabs(numbers[n - 1])));
    }
    const auto most = std::bit_cast<float>(bits);
    const float scale = most > 1e-36f ? 63.5f / most : 0.0f;  // otherwise it could be infinite
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float number = numbers[i] * scale;
        const auto code = static_cast<std::int32_t>(number < 0.0f ? number - 0.5f : number + 0.5f);
        codes[i] = static_cast<std::int8_t>(code);
        sum += code;
    }
    return sum;
}

PYFAST_MULTIVERSION
void shift(const std::int8_t* codes, std::size_t n, std::uint8_t* shifted) {
    for (std::size_t i = 0; i < n; ++i) {
        shifted[i] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(codes[i]) ^ 0x80U);
    }
}

void multiply(MaxsimLevel level, const Chosen& chosen, float* products) {
#ifdef PYFAST_MAXSIM_X86
    const Multiply run = level == MaxsimLevel::portable ? multiply_portable : multiply_avx2;
#else
    const Multiply run = multiply_portable;
    static_cast<void>(level);
#endif
    run(chosen, products);
}

void choose(MaxsimLevel level, const Codes& codes, std::int32_t* chosen) {
    std::fill_n(chosen, codes.tiles * lanes, 0);
    kernel(level)(codes, chosen);
}

PYFAST_MULTIVERSION
void largest(const float* query, std::size_t tiles, std::size_t dimensions, const float* document,
             std::size_t tokens, float* best) {
    constexpr std::size_t rows = 8;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
        const float* const own = query + tile * dimensions * lanes;
        Floats most = Floats{} + none;
        Floats poison = {};
        std::size_t t = 0;
        for (; t + rows <= tokens; t += rows) {
            largest_of<rows>(own, dimensions, document + t * dimensions, most, poison);
        }
        for (; t < tokens; ++t) {
            largest_of<1>(own, dimensions, document + t * dimensions, most, poison);
        }
        most += poison;
        std::memcpy(best + tile * lanes, &most, sizeof most);
    }
}

}  // namespace pyfast::maxsim_rows
