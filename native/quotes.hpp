// Skips what needs no look inside a text: many bytes at once, none behind `end`.
#pragma once

#include <cstdint>
#include <cstring>

// A test compiles the other way, too.
#if defined(__SSE2__) && !defined(HPUPROF_PORTABLE)
#include <emmintrin.h>
#endif

namespace hpuprof {

// To the first quote, backslash or control character, or near the end. `ascii` becomes false if other bytes are met.
inline const char* skip_plain(const char* at, const char* end, bool& ascii) {
#if defined(__SSE2__) && !defined(HPUPROF_PORTABLE)
    for (; end - at >= 16; at += 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(' ' - 1)), bytes);
        const __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
        if (_mm_movemask_epi8(bytes) != 0) ascii = false;
        if (const int found = _mm_movemask_epi8(_mm_or_si128(control, marks)); found != 0) return at + __builtin_ctz(found);
    }
#else
    constexpr std::uint64_t ONES = 0x0101010101010101u, HIGH = 0x8080808080808080u;
    constexpr auto zero = [](std::uint64_t word) { return (word - ONES) & ~word & HIGH; };
    for (; end - at >= 8; at += 8) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        if ((word & HIGH) != 0) ascii = false;
        const std::uint64_t found = zero(word ^ ONES * '"') | zero(word ^ ONES * '\\') | ((word - ONES * ' ') & ~word & HIGH);
        if (found == 0) continue;
        if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) at += __builtin_ctzll(found) >> 3;  // the lowest is no borrow's
        break;
    }
#endif
    return at;
}

}  // namespace hpuprof
