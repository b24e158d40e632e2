// Whether bytes are UTF-8, as Python decodes it.
#pragma once

#include <cstdint>

#include "siphash.hpp"

namespace hpuprof {

// None overlong, no surrogates, nothing past U+10FFFF: table 3-7 of the Unicode standard.
inline bool utf8(const char* at, const char* end) {
    const auto byte = [&] { return static_cast<unsigned char>(*at++); };
    while (at < end) {
        if (end - at >= 8 && (eight(at) & 0x8080808080808080u) == 0) {
            at += 8;
            continue;
        }
        const unsigned first = byte();
        if (first < 0x80) continue;
        if (first < 0xC2 || first > 0xF4) return false;
        unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;  // of the second byte
        unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        for (int left = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3; left > 0; --left, low = 0x80, high = 0xBF) {
            if (at == end) return false;
            if (const unsigned next = byte(); next < low || next > high) return false;
        }
    }
    return true;
}

}  // namespace hpuprof
