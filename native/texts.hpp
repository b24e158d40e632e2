// Distinct texts and their codes.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace hpuprof {

// Eight bytes of a text, fewer where it is shorter.
inline std::uint64_t eight(const char* at) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
}

inline std::uint64_t few(const char* at, std::size_t size) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < size; ++i) word = word << 8 | static_cast<unsigned char>(at[i]);
    return word;
}

// Whether texts are equal, without a call for short ones: the last eight bytes may overlap those before.
inline bool same(std::string_view one, std::string_view other) {
    const std::size_t size = one.size();
    if (size != other.size()) return false;
    if (size < 8) return few(one.data(), size) == few(other.data(), size);
    for (std::size_t at = 0; at + 8 < size; at += 8)
        if (eight(one.data() + at) != eight(other.data() + at)) return false;
    return eight(one.data() + size - 8) == eight(other.data() + size - 8);
}

// Distinct texts, numbered as they come; 0 is the empty one. Memory grows with the texts alone.
class Texts {
  public:
    Texts();
    std::int64_t code(std::string_view text);
    template <std::size_t N> std::int64_t code(const std::array<std::int64_t, N>& codes) {
        return code({reinterpret_cast<const char*>(codes.data()), sizeof codes});
    }
    std::int64_t count() const { return static_cast<std::int64_t>(ends_.size()); }
    std::string_view text(std::int64_t code) const;

  private:
    std::uint64_t hash(std::string_view text) const;
    void grow();

    std::uint64_t seed_;
    std::vector<std::uint32_t> slots_;  // code + 1, 0 where free; a power of two of them
    std::vector<std::uint64_t> hashes_;
    std::vector<std::size_t> ends_;
    std::string held_;
};

inline Texts::Texts() : seed_(std::random_device{}()), slots_(1024) { code({}); }

// Multiplies and folds eight bytes at a time; seeded, so that no file can be written whose texts all collide.
inline std::uint64_t Texts::hash(std::string_view text) const {
    constexpr std::uint64_t FACTOR = 0x9E3779B97F4A7C15u;
    std::uint64_t mixed = (seed_ ^ text.size()) * FACTOR;
    const auto add = [&](std::uint64_t word) {
        mixed = (mixed ^ word) * FACTOR;
        mixed ^= mixed >> 29;
    };
    const std::size_t size = text.size();
    if (size < 8) {
        add(few(text.data(), size));
    } else {
        for (std::size_t at = 0; at + 8 < size; at += 8) add(eight(text.data() + at));
        add(eight(text.data() + size - 8));
    }
    return mixed ^ mixed >> 32;
}

inline std::string_view Texts::text(std::int64_t code) const {
    const std::size_t begin = code == 0 ? 0 : ends_[code - 1];
    return std::string_view(held_).substr(begin, ends_[code] - begin);
}

inline std::int64_t Texts::code(std::string_view text) {
    const std::uint64_t mixed = hash(text), mask = slots_.size() - 1;
    std::uint64_t slot = mixed & mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
        const std::int64_t code = slots_[slot] - 1;
        if (hashes_[code] == mixed && same(this->text(code), text)) return code;
    }
    const std::size_t code = ends_.size();
    if (code >= UINT32_MAX - 1) throw std::bad_alloc();
    held_.append(text);
    hashes_.push_back(mixed);
    ends_.push_back(held_.size());
    slots_[slot] = static_cast<std::uint32_t>(code + 1);
    if (ends_.size() * 2 > slots_.size()) grow();
    return static_cast<std::int64_t>(code);
}

inline void Texts::grow() {
    std::vector<std::uint32_t> wider(slots_.size() * 2);
    const std::uint64_t mask = wider.size() - 1;
    for (std::size_t code = 0; code < hashes_.size(); ++code) {
        std::uint64_t slot = hashes_[code] & mask;
        while (wider[slot] != 0) slot = (slot + 1) & mask;
        wider[slot] = static_cast<std::uint32_t>(code + 1);
    }
    slots_.swap(wider);
}

}  // namespace hpuprof
