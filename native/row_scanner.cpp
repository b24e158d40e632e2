#include "row_scanner.hpp"

#include <cmath>
#include <cstring>
#include <random>

namespace hpuprof {

namespace {

using Place = const char*;

// Limits by judgement: beyond them the Python path, which has none of these, decides.
constexpr int MOST_DEPTH = 64;
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

bool hexadecimal(char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

Place literal(Place at, std::string_view word) {
    for (const char c : word)
        if (*at++ != c) return nullptr;
    return at;
}

// Digits behind those that are found already.
Place digits(Place at, std::int64_t& found) {
    for (; digit(*at); ++at) {
        if (found >= MOST / 10) return nullptr;
        found = found * 10 + (*at - '0');
    }
    return at;
}

// Digits without a leading zero.
Place natural(Place at, std::int64_t& found) {
    const Place first = at;
    found = 0;
    if ((at = digits(at, found)) == nullptr) return nullptr;
    return at == first || (*first == '0' && at - first > 1) ? nullptr : at;
}

// A number, whatever it is, by the grammar of JSON.
Place number(Place at) {
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

Place decimal(Place at, Decimal& found) {
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
bool exact_ns(const Decimal& micros, std::int64_t& ns) {
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

}  // namespace

// --- distinct texts

Texts::Texts() : seed_(std::random_device{}()), slots_(1024) { code({}); }

// Multiplies and folds eight bytes at a time; seeded, so that no file can be written whose texts all collide.
std::uint64_t Texts::hash(std::string_view text) const {
    constexpr std::uint64_t FACTOR = 0x9E3779B97F4A7C15u;
    std::uint64_t mixed = (seed_ ^ text.size()) * FACTOR;
    while (!text.empty()) {
        std::uint64_t word = 0;
        const std::size_t taken = text.size() < 8 ? text.size() : 8;
        std::memcpy(&word, text.data(), taken);
        mixed = (mixed ^ word) * FACTOR;
        mixed ^= mixed >> 29;
        text.remove_prefix(taken);
    }
    return mixed ^ mixed >> 32;
}

std::string_view Texts::text(std::int64_t code) const {
    const std::size_t begin = code == 0 ? 0 : ends_[code - 1];
    return std::string_view(held_).substr(begin, ends_[code] - begin);
}

std::int64_t Texts::code(std::string_view text) {
    const std::uint64_t mixed = hash(text), mask = slots_.size() - 1;
    std::uint64_t slot = mixed & mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
        const std::int64_t code = slots_[slot] - 1;
        if (hashes_[code] == mixed && this->text(code) == text) return code;
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

void Texts::grow() {
    std::vector<std::uint32_t> wider(slots_.size() * 2);
    const std::uint64_t mask = wider.size() - 1;
    for (std::size_t code = 0; code < hashes_.size(); ++code) {
        std::uint64_t slot = hashes_[code] & mask;
        while (wider[slot] != 0) slot = (slot + 1) & mask;
        wider[slot] = static_cast<std::uint32_t>(code + 1);
    }
    slots_.swap(wider);
}

// --- rows

// A row while it is read; texts are views of the file.
struct Row {
    enum Word { CAT_WORD, NAME_WORD, PID, TID, DTYPE_WORD, HW_WORD, WORDS };
    enum Input { DIMS, TYPES, STRIDES, VALUES, STACK, MODULE, INPUT_TEXTS };

    Slice slice{0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0};
    std::array<std::string_view, WORDS> words{};
    std::array<std::string_view, INPUT_TEXTS> inputs{};
    char phase = 0;
};

namespace {

enum RowKey { PH_KEY, TS_KEY, DUR_KEY, CAT_KEY, NAME_KEY, PID_KEY, TID_KEY, ARGS_KEY, OTHER_KEY };

RowKey row_key(std::string_view key) {
    switch (key.size()) {
        case 2: return key == "ph" ? PH_KEY : key == "ts" ? TS_KEY : OTHER_KEY;
        case 3: return key == "dur" ? DUR_KEY : key == "cat" ? CAT_KEY : key == "pid" ? PID_KEY : key == "tid" ? TID_KEY : OTHER_KEY;
        case 4: return key == "name" ? NAME_KEY : key == "args" ? ARGS_KEY : OTHER_KEY;
        default: return OTHER_KEY;
    }
}

// Where an argument goes: a number's column, a word, an input's text, or nowhere.
struct Argument {
    enum Kind { NUMBER, WORD, TEXT, NONE } kind = NONE;
    int index = 0;
};

Argument argument(std::string_view key) {
    switch (key.size()) {
        case 5: if (key == "bytes") return {Argument::NUMBER, BYTES}; break;
        case 8:
            if (key == "recipeId") return {Argument::NUMBER, RECIPE};
            if (key == "dataType") return {Argument::WORD, Row::DTYPE_WORD};
            break;
        case 10:
            if (key == "Input Dims") return {Argument::TEXT, Row::DIMS};
            if (key == "Input type") return {Argument::TEXT, Row::TYPES};
            if (key == "Call stack") return {Argument::TEXT, Row::STACK};
            break;
        case 11:
            if (key == "External id") return {Argument::NUMBER, EXTERNAL};
            if (key == "correlation") return {Argument::NUMBER, CORRELATION};
            if (key == "external id") return {Argument::NUMBER, EXTERNAL_OLD};
            break;
        case 13:
            if (key == "Fwd thread id") return {Argument::NUMBER, FORWARD_THREAD};
            if (key == "Input Strides") return {Argument::TEXT, Row::STRIDES};
            if (key == "HW event name") return {Argument::WORD, Row::HW_WORD};
            break;
        case 15:
            if (key == "Sequence number") return {Argument::NUMBER, SEQUENCE};
            if (key == "Concrete Inputs") return {Argument::TEXT, Row::VALUES};
            break;
        case 16: if (key == "Module Hierarchy") return {Argument::TEXT, Row::MODULE}; break;
        default: break;
    }
    return {};
}

}  // namespace

bool RowScanner::scan(const char* text, std::size_t size, bool exact) {
    slices.clear();
    others.clear();
    flows = 0;
    ascii = true;
    begin_ = text, end_ = text + size;
    exact_ = exact, late_ = fraction_ = false;
    Place at = space(text);
    while (at != end_) {
        if (*at != '{' || (at = row(at)) == nullptr) return false;
        at = space(at);
        if (at == end_) break;
        if (*at != ',') return false;
        at = space(at + 1);
        if (at == end_) return false;
    }
    return !(late_ && fraction_);
}

Place RowScanner::row(Place at) {
    Row found;
    unsigned seen = 0;
    std::string_view key;
    bool more = true;
    found.slice[OFFSET] = at - begin_;
    for (at = next(at + 1, '}', more = false); at != nullptr && more; at = next(at, '}', more)) {
        if ((at = member(at, key)) == nullptr) return nullptr;
        const RowKey which = row_key(key);
        if (which != OTHER_KEY) {
            if ((seen & 1u << which) != 0) return nullptr;
            seen |= 1u << which;
        }
        switch (which) {
            case PH_KEY:
                if (at[0] != '"' || at[1] < ' ' || at[1] == '"' || at[1] == '\\' || at[2] != '"') return nullptr;
                found.phase = at[1];
                at += 3;
                break;
            case TS_KEY: at = stamp(at, found.slice); break;
            case DUR_KEY: at = duration(at, found.slice); break;
            case CAT_KEY: at = word(at, found.words[Row::CAT_WORD]); break;
            case NAME_KEY: at = word(at, found.words[Row::NAME_WORD]); break;
            case PID_KEY: at = word(at, found.words[Row::PID]); break;
            case TID_KEY: at = word(at, found.words[Row::TID]); break;
            case ARGS_KEY: at = *at == 'n' ? literal(at, "null") : arguments(at, found); break;
            case OTHER_KEY: at = value(at, 0); break;
        }
        if (at == nullptr) return nullptr;
    }
    if (at == nullptr) return nullptr;
    found.slice[LENGTH] = at - begin_ - found.slice[OFFSET];
    keep(found);
    return at;
}

Place RowScanner::arguments(Place at, Row& row) {
    if (*at != '{') return nullptr;
    std::string_view key;
    bool more;
    for (at = next(at + 1, '}', more = false); at != nullptr && more; at = next(at, '}', more)) {
        if ((at = member(at, key)) == nullptr) return nullptr;
        const Argument found = argument(key);
        switch (found.kind) {
            case Argument::NUMBER: at = integer(at, row.slice[found.index]); break;
            case Argument::WORD: at = word(at, row.words[found.index]); break;
            case Argument::TEXT: at = raw(at, row.inputs[found.index]); break;
            case Argument::NONE: at = value(at, 0); break;
        }
        if (at == nullptr) return nullptr;
    }
    return at;
}

// Behind an opening bracket (`more` is false) or a member: to the next one, or behind the closing bracket.
inline Place RowScanner::next(Place at, char close, bool& more) const {
    at = space(at);
    if (*at == close) {
        more = false;
        return at + 1;
    }
    if (more) {
        if (*at != ',') return nullptr;
        at = space(at + 1);
    }
    more = true;
    return at;
}

// A key without escapes and its colon.
inline Place RowScanner::member(Place at, std::string_view& key) {
    if (*at != '"') return nullptr;
    bool escaped = false;
    const Place behind = text(at, escaped);
    if (behind == nullptr || escaped) return nullptr;
    key = {at + 1, static_cast<std::size_t>(behind - at - 2)};
    at = space(behind);
    return *at == ':' ? space(at + 1) : nullptr;
}

Place RowScanner::stamp(Place at, Slice& slice) {
    if (*at == 'n') return fraction_ = true, literal(at, "null");
    Decimal micros;
    if ((at = decimal(at, micros)) == nullptr) return nullptr;
    std::int64_t& ns = slice[START];
    if (exact_) {
        if (!exact_ns(micros, ns)) return nullptr;
    } else if (micros.decimals == 0) {
        if (micros.digits >= LIMIT_US) return nullptr;
        late_ |= micros.digits >= EXACT_US;
        ns = (micros.negative ? -micros.digits : micros.digits) * 1000;
    } else {
        if (!micros.fits()) return nullptr;
        const double stamp = micros.number(), whole = std::floor(stamp);
        if (std::fabs(stamp) >= static_cast<double>(EXACT_US - 1)) return nullptr;
        fraction_ = true;
        ns = static_cast<std::int64_t>(whole) * 1000 + static_cast<std::int64_t>(std::nearbyint((stamp - whole) * 1000));
    }
    slice[STATE] |= 1;
    return at;
}

Place RowScanner::duration(Place at, Slice& slice) {
    if (*at == 'n') return literal(at, "null");
    Decimal micros;
    if ((at = decimal(at, micros)) == nullptr || !micros.fits()) return nullptr;
    const double dur = micros.number();
    if (std::fabs(dur) >= 9e15) return nullptr;  // where Python clips
    slice[DUR] = static_cast<std::int64_t>(std::nearbyint(dur * 1000));
    slice[STATE] |= 2;
    return at;
}

// A text, an integer or null, as written.
Place RowScanner::word(Place at, std::string_view& found) {
    const Place first = at;
    if (*at == '"') {
        bool escaped = false;
        at = text(at, escaped);
    } else if (*at == 'n') {
        at = literal(at, "null");
    } else {
        std::int64_t number;
        at = integer(at, number);
    }
    if (at != nullptr) found = {first, static_cast<std::size_t>(at - first)};
    return at;
}

// An integer, also as text; null counts as none.
Place RowScanner::integer(Place at, std::int64_t& found) const {
    if (*at == 'n') return found = -1, literal(at, "null");
    const bool quoted = *at == '"';
    if (quoted) ++at;
    const bool negative = *at == '-';
    if (negative) ++at;
    if ((at = natural(at, found)) == nullptr) return nullptr;
    if (negative) found = -found;
    if (quoted) return *at == '"' ? at + 1 : nullptr;
    return *at == '.' || *at == 'e' || *at == 'E' ? nullptr : at;
}

Place RowScanner::raw(Place at, std::string_view& found) {
    const Place behind = value(at, 0);
    if (behind != nullptr) found = {at, static_cast<std::size_t>(behind - at)};
    return behind;
}

// From an opening quote to behind the closing one.
Place RowScanner::text(Place at, bool& escaped) {
    constexpr std::uint64_t ONES = 0x0101010101010101u, HIGH = 0x8080808080808080u;
    constexpr auto zero = [](std::uint64_t word) { return (word - ONES) & ~word & HIGH; };
    ++at;
    for (;;) {
        while (end_ - at >= 8) {
            std::uint64_t word;
            std::memcpy(&word, at, 8);
            const std::uint64_t control = (word - ONES * ' ') & ~word & HIGH;
            if ((zero(word ^ ONES * '"') | zero(word ^ ONES * '\\') | control) != 0) break;
            if ((word & HIGH) != 0) ascii = false;
            at += 8;
        }
        for (int left = 8; left > 0; --left, ++at) {
            const auto c = static_cast<unsigned char>(*at);
            if (c == '"') return at + 1;
            if (c < ' ') return nullptr;  // the end of the text is among them
            if (c >= 0x80) ascii = false;
            if (c != '\\') continue;
            escaped = true;
            switch (*++at) {
                case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': break;
                case 'u':
                    for (int i = 0; i < 4; ++i)
                        if (!hexadecimal(*++at)) return nullptr;
                    break;
                default: return nullptr;
            }
        }
    }
}

// Any value; what is in it does not count.
Place RowScanner::value(Place at, int depth) {
    bool ignored = false;
    switch (*at) {
        case '"': return text(at, ignored);
        case 't': return literal(at, "true");
        case 'f': return literal(at, "false");
        case 'n': return literal(at, "null");
        case '{': case '[': break;
        default: return number(at);
    }
    if (depth == MOST_DEPTH) return nullptr;
    const char close = *at == '{' ? '}' : ']';
    bool more;
    for (at = next(at + 1, close, more = false); at != nullptr && more; at = next(at, close, more)) {
        if (close == '}') {
            if (*at != '"' || (at = text(at, ignored)) == nullptr || *(at = space(at)) != ':') return nullptr;
            at = space(at + 1);
        }
        if ((at = value(at, depth + 1)) == nullptr) return nullptr;
    }
    return at;
}

void RowScanner::keep(const Row& row) {
    if (row.phase == 's' || row.phase == 't' || row.phase == 'f') {
        ++flows;
        return;
    }
    if (row.phase != 'X') {
        others.push_back({row.slice[OFFSET], row.slice[LENGTH]});
        return;
    }
    Slice& slice = slices.emplace_back(row.slice);
    if ((slice[STATE] & 1) == 0) fraction_ = true;
    slice[CAT] = words.code(row.words[Row::CAT_WORD]);
    slice[NAME] = words.code(row.words[Row::NAME_WORD]);
    slice[DTYPE] = words.code(row.words[Row::DTYPE_WORD]);
    slice[HW] = words.code(row.words[Row::HW_WORD]);
    const std::array<std::int64_t, 2> track{words.code(row.words[Row::PID]), words.code(row.words[Row::TID])};
    if (track != last_) {
        last_ = track;
        last_track_ = tracks.code({reinterpret_cast<const char*>(track.data()), sizeof track});
    }
    slice[TRACK] = last_track_;
    if (row.inputs[Row::DIMS].empty() && row.inputs[Row::TYPES].empty() && row.inputs[Row::STACK].empty()) return;
    joined_.clear();
    for (const std::string_view text : row.inputs) joined_.append(text).push_back('\0');
    joined_.pop_back();
    slice[INPUTS] = inputs.code(joined_);
}

}  // namespace hpuprof
