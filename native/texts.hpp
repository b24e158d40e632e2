// Distinct texts and their codes.
#pragma once

#include <array>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "siphash.hpp"

namespace hpuprof {

// Whether texts are equal, without a call for short ones: the last eight bytes may overlap those before.
inline bool same(std::string_view one, std::string_view other) {
    const std::size_t size = one.size();
    if (size != other.size()) return false;
    if (size < 8) return few(one.data(), size) == few(other.data(), size);
    for (std::size_t at = 0; at + 8 < size; at += 8)
        if (eight(one.data() + at) != eight(other.data() + at)) return false;
    return eight(one.data() + size - 8) == eight(other.data() + size - 8);
}

// Too many texts lie where one belongs.
struct Crowded {};

// In a table that is half full the longest of n searches looks at about 5 ln n places (Pittel, "Linear probing: the
// probable largest search time grows logarithmically with the number of records", 1987): 115 for 2^32 texts.
constexpr int MOST_PROBES = 256;

// Distinct texts, numbered as they come; 0 is the empty one. Memory grows with the texts alone.
class Texts {
  public:
    explicit Texts(const Key& key);
    // Throws Crowded, and bad_alloc, after which `keep` must follow.
    std::int64_t code(std::string_view text);
    template <std::size_t N> std::int64_t code(const std::array<std::int64_t, N>& codes) {
        return code({reinterpret_cast<const char*>(codes.data()), sizeof codes});
    }
    std::int64_t count() const { return static_cast<std::int64_t>(ends_.size()); }
    std::string_view text(std::int64_t code) const;
    // Forgets all texts but the first `count`, at least one.
    void keep(std::int64_t count);

  private:
    static std::size_t recent_place(std::string_view text);
    std::uint32_t searched(std::string_view text);
    void grow();

    Key key_;
    std::array<std::uint32_t, 512> recent_{};  // codes of texts that may come again, found without their hash
    std::vector<std::uint32_t> slots_;         // code + 1, 0 where free; a power of two of them
    std::vector<std::uint64_t> hashes_;
    std::vector<std::size_t> ends_;
    std::string held_;
};

inline Texts::Texts(const Key& key) : key_(key), slots_(1024) { searched({}); }

inline std::string_view Texts::text(std::int64_t code) const {
    const std::size_t begin = code == 0 ? 0 : ends_[code - 1];
    return std::string_view(held_).substr(begin, ends_[code] - begin);
}

// By some of its bytes. A file may make texts collide here: they are searched, no more.
inline std::size_t Texts::recent_place(std::string_view text) {
    const char* const at = text.data();
    const std::size_t size = text.size();
    std::uint64_t mixed = size;
    if (size < 8) {
        mixed ^= few(at, size) << 8;
    } else {
        const std::size_t last = size - 8;
        mixed ^= eight(at) ^ eight(at + (last < 8 ? last : 8)) * 3 ^ eight(at + last / 2) * 5 ^ eight(at + last) * 7;
    }
    return mixed * 0x9E3779B97F4A7C15u >> (64 - 9);
}

inline std::int64_t Texts::code(std::string_view text) {
    std::uint32_t& recent = recent_[recent_place(text)];
    if (!same(this->text(recent), text)) recent = searched(text);
    return recent;
}

inline std::uint32_t Texts::searched(std::string_view text) {
    const std::uint64_t hash = siphash(key_, text), mask = slots_.size() - 1;
    std::uint64_t slot = hash & mask;
    for (int probes = 0; slots_[slot] != 0; slot = (slot + 1) & mask) {
        const std::uint32_t code = slots_[slot] - 1;
        if (hashes_[code] == hash && same(this->text(code), text)) return code;
        if (++probes > MOST_PROBES) throw Crowded{};
    }
    const std::size_t code = ends_.size();
    if (code >= UINT32_MAX - 1) throw std::bad_alloc();
    held_.append(text);
    hashes_.push_back(hash);
    ends_.push_back(held_.size());
    slots_[slot] = static_cast<std::uint32_t>(code + 1);
    if (ends_.size() * 2 > slots_.size()) grow();
    return static_cast<std::uint32_t>(code);
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

// The last text goes first: each lies where it belongs among those before it. One may have been left without an end.
inline void Texts::keep(std::int64_t count) {
    const std::uint64_t mask = slots_.size() - 1;
    for (std::int64_t code = this->count(); code-- > count;) {
        std::uint64_t slot = hashes_[code] & mask;
        while (slots_[slot] != static_cast<std::uint32_t>(code + 1)) slot = (slot + 1) & mask;
        slots_[slot] = 0;
    }
    ends_.resize(count);
    hashes_.resize(count);
    held_.resize(ends_.back());
    recent_.fill(0);
}

}  // namespace hpuprof
