// Numbers of a JSON text: strictly by its grammar, times to ns. Places are in a text that ends with a 0 byte.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hpuprof {

using Place = const char*;  // null: no JSON, or unusual

// Limits by judgment: beyond them the Python path, which has none of these, decides.
constexpr std::int64_t MOST = 4'000'000'000'000'000'000;  // of a number that is kept, its point left out: some 2**62
constexpr int MOST_WHOLE = 20;     // of a number that is skipped, before the point: addresses have as many
constexpr int MOST_DECIMALS = 40;
constexpr int MOST_EXPONENT = 2;   // digits: such a number is finite
// Those of hpuprof/ingest/stamps.py.
constexpr std::int64_t LIMIT_US = (std::int64_t{1} << 62) / 1000;
constexpr std::int64_t EXACT_US = std::int64_t{1} << 43;
constexpr std::int64_t EXACT_DOUBLE = std::int64_t{1} << 53;

constexpr std::array<std::int64_t, 19> TENS = [] {
    std::array<std::int64_t, 19> tens{};
    std::int64_t ten = 1;
    for (auto& value : tens) value = ten, ten = value == 1'000'000'000'000'000'000 ? 0 : ten * 10;
    return tens;
}();

inline Place space(Place at) {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') ++at;
    return at;
}

inline bool digit(char c) { return c >= '0' && c <= '9'; }

inline bool hexadecimal(char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

inline Place literal(Place at, std::string_view word) {
    for (const char c : word)
        if (*at++ != c) return nullptr;
    return at;
}

// Digits behind those that are found already.
inline Place digits(Place at, std::int64_t& found) {
    for (; digit(*at); ++at) {
        if (found >= MOST / 10) return nullptr;
        found = found * 10 + (*at - '0');
    }
    return at;
}

// Digits without a leading zero.
inline Place natural(Place at, std::int64_t& found) {
    const Place first = at;
    found = 0;
    if ((at = digits(at, found)) == nullptr) return nullptr;
    return at == first || (*first == '0' && at - first > 1) ? nullptr : at;
}

// A number, whatever it is, by the grammar of JSON.
inline Place number(Place at) {
    if (*at == '-') ++at;
    const Place whole = at;
    while (digit(*at)) ++at;
    if (at == whole || at - whole > MOST_WHOLE || (*whole == '0' && at - whole > 1)) return nullptr;
    if (*at == '.') {
        const Place first = ++at;
        while (digit(*at)) ++at;
        if (at == first || at - first > MOST_DECIMALS) return nullptr;
    }
    if (*at == 'e' || *at == 'E') {
        ++at;
        if (*at == '+' || *at == '-') ++at;
        const Place first = at;
        while (digit(*at)) ++at;
        if (at == first || at - first > MOST_EXPONENT) return nullptr;
    }
    return at;
}

// A decimal number without exponent: `digits` / 10**`decimals`.
struct Decimal {
    bool negative = false;
    std::int64_t digits = 0;
    int decimals = 0;

    // The nearest double: both parts are exact, so the quotient is rounded once.
    bool fits() const { return digits <= EXACT_DOUBLE; }
    double number() const {
        const double size = static_cast<double>(digits) / static_cast<double>(TENS[decimals]);
        return negative ? -size : size;
    }
};

inline Place decimal(Place at, Decimal& found) {
    found = {};
    if (*at == '-') found.negative = true, ++at;
    if ((at = natural(at, found.digits)) == nullptr) return nullptr;
    if (*at == '.') {
        const Place first = ++at;
        if ((at = digits(at, found.digits)) == nullptr || at == first || at - first >= static_cast<int>(TENS.size())) return nullptr;
        found.decimals = static_cast<int>(at - first);
    }
    return *at == 'e' || *at == 'E' ? nullptr : at;
}

// µs to ns, half to even.
inline bool exact_ns(const Decimal& micros, std::int64_t& ns) {
    if (micros.decimals <= 3) {
        const std::int64_t scale = TENS[3 - micros.decimals];
        if (micros.digits >= LIMIT_US * 1000 / scale) return false;
        ns = micros.digits * scale;
    } else {
        const std::int64_t scale = TENS[micros.decimals - 3];
        ns = micros.digits / scale;
        const std::int64_t rest = 2 * (micros.digits % scale);
        if (rest > scale || (rest == scale && ns % 2 != 0)) ++ns;
    }
    if (micros.negative) ns = -ns;
    return true;
}

}  // namespace hpuprof
