// A hash that nobody can aim at without its key.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hpuprof {

// Eight bytes of a text, fewer where it is shorter.
inline std::uint64_t eight(const char* at) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
}

inline std::uint64_t few(const char* at, std::size_t size) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < size; ++i) word |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << 8 * i;
    return word;
}

using Key = std::array<std::uint64_t, 2>;

// SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), one round per word and three at the end, as
// Python hashes text. Chosen over folded multiplications, which are faster: no collisions are known that hold for all keys.
// Words are read as the machine has them, so that big-endian ones get other values, just as good.
inline std::uint64_t siphash(const Key& key, std::string_view text) {
    std::uint64_t a = key[0] ^ 0x736f6d6570736575u, b = key[1] ^ 0x646f72616e646f6du;
    std::uint64_t c = key[0] ^ 0x6c7967656e657261u, d = key[1] ^ 0x7465646279746573u;
    const auto turned = [](std::uint64_t word, int by) { return word << by | word >> (64 - by); };
    const auto round = [&] {
        a += b, c += d;
        b = turned(b, 13) ^ a, d = turned(d, 16) ^ c;
        a = turned(a, 32);
        c += b, a += d;
        b = turned(b, 17) ^ c, d = turned(d, 21) ^ a;
        c = turned(c, 32);
    };
    const auto add = [&](std::uint64_t word) {
        d ^= word;
        round();
        a ^= word;
    };
    const std::size_t size = text.size();
    std::size_t at = 0;
    for (; at + 8 <= size; at += 8) add(eight(text.data() + at));
    add(static_cast<std::uint64_t>(size) << 56 | few(text.data() + at, size - at));
    c ^= 0xff;
    for (int i = 0; i < 3; ++i) round();
    return a ^ b ^ c ^ d;
}

}  // namespace hpuprof
