#include "row_scanner.hpp"

#include <cmath>
#include <iterator>

#include "numbers.hpp"
#include "quotes.hpp"
#include "row_keys.hpp"
#include "utf8.hpp"

namespace hpuprof {

constexpr int MOST_DEPTH = 64;  // by judgment, as the limits in numbers.hpp

bool RowScanner::scan(const char* text, std::size_t size, bool exact) {
    Texts* const tables[] = {&words, &tracks, &inputs, &recipes, &collectives_, &kinds_};
    std::int64_t counts[std::size(tables)];
    for (std::size_t i = 0; i < std::size(tables); ++i) counts[i] = tables[i]->count();
    const auto undo = [&] {
        for (std::size_t i = 0; i < std::size(tables); ++i) tables[i]->keep(counts[i]);
    };
    try {
        if (read(text, size, exact)) return true;
    } catch (const Crowded&) {
    } catch (...) {
        undo();
        throw;
    }
    undo();
    return false;
}

bool RowScanner::read(const char* text, std::size_t size, bool exact) {
    slices.clear();
    others.clear();
    flows = 0;
    sampled = true;
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
                if (at[0] != '"' || at[1] < ' ' || at[1] > '~' || at[1] == '"' || at[1] == '\\' || at[2] != '"') return nullptr;
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
            case Argument::LABEL:
                row.words[found.index] = {};
                at = *at == '"' ? word(at, row.words[found.index]) : value(at, 0);
                break;
            case Argument::TEXT:
                at = raw(at, texts_[found.index]);
                row.given |= bit(found.index);
                break;
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

// From an opening quote to behind the closing one; most texts end where the first skip does. Null: no JSON or UTF-8.
inline Place RowScanner::text(Place at, bool& escaped) const {
    const Place first = at + 1;
    bool ascii = true;
    at = skip_plain(first, end_, ascii);
    at = *at == '"' ? at + 1 : rest_of_text(at, escaped, ascii);
    return ascii || at == nullptr || utf8(first, at - 1) ? at : nullptr;
}

Place RowScanner::rest_of_text(Place at, bool& escaped, bool& ascii) const {
    for (;; at = skip_plain(at, end_, ascii)) {
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
        default: return hpuprof::number(at);
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
    if ((row.slice[STATE] & 1) == 0) fraction_ = true;
    if (row.phase != 'X') return keep_other(row);
    Slice& slice = slices.emplace_back(row.slice);
    const auto code = [&](Row::Word which) { return words.code(row.words[which]); };
    slice[CAT] = code(Row::CAT_WORD);
    slice[NAME] = code(Row::NAME_WORD);
    slice[DTYPE] = code(Row::DTYPE_WORD);
    slice[HW] = code(Row::HW_WORD);
    const std::array<std::int64_t, 2> track{code(Row::PID), code(Row::TID)};
    slice[TRACK] = tracks.code(track);
    const auto given = [&](Row::Word which) { return !row.words[which].empty(); };
    if (given(Row::RECIPE_ID) || given(Row::RECIPE_HANDLE) || given(Row::RECIPE_NAME))
        slice[RECIPE] = recipes.code(std::array<std::int64_t, 3>{code(Row::RECIPE_ID), code(Row::RECIPE_HANDLE), code(Row::RECIPE_NAME)});
    if (given(Row::EVENT_NAME) || given(Row::ORIGINAL_NODES))
        slice[NODE] = recipes.code(std::array<std::int64_t, 2>{code(Row::EVENT_NAME), code(Row::ORIGINAL_NODES)});
    if ((row.given & OF_INPUTS) != 0)
        slice[INPUTS] = joined(Row::DIMS, Row::COLLECTIVE, row.given, inputs);
    if ((row.given & OF_COLLECTIVE) != 0)
        slice[COLLECTIVE] = joined(Row::COLLECTIVE, Row::META_NAME, row.given, collectives_);
}

// The code of texts that follow each other.
std::int64_t RowScanner::joined(int first, int end, std::uint32_t given, Texts& texts) {
    joined_.clear();
    for (int text = first; text < end; ++text) {
        if ((given & bit(text)) != 0) joined_.append(texts_[text]);
        if (text + 1 < end) joined_.push_back('\0');
    }
    return texts.code(joined_);
}

bool RowScanner::says(const Row& row, int text) const { return (row.given & bit(text)) != 0 && texts_[text] != "null"; }

// What a row says of memory, as hpuprof/ingest/allocator_rows.py reads it. False: a number is unusual.
bool RowScanner::sample(const Row& row, Other& other) const {
    const auto read = [&](Row::Text which, std::int64_t& found) {
        const std::string_view text = texts_[which];
        return !says(row, which) || integer(text.data(), found) == text.data() + text.size();
    };
    if (row.phase == 'C') {
        const bool resident = says(row, Row::RESIDENT);
        other.device = resident ? 0 : 1;
        return read(resident ? Row::RESIDENT : Row::ALLOCATED, other.held) && read(says(row, Row::RESERVED) ? Row::RESERVED : Row::LIMIT, other.room);
    }
    const bool usual = read(Row::DEVICE_TYPE, other.device) && read(Row::CHANGE, other.change);
    other.device = other.device != 0 ? 1 : 0;
    return usual && read(Row::TOTAL_ALLOCATED, other.held) && read(Row::TOTAL_RESERVED, other.room);
}

void RowScanner::keep_other(const Row& row) {
    Other& other = others.emplace_back();
    other = {row.slice[START], row.slice[STATE] & 1, 0, 0, 0, -1, -1, row.slice[OFFSET], row.slice[LENGTH]};
    std::array<std::int64_t, 8> kind{row.phase};
    const auto word = [&](Row::Word which) { return words.code(row.words[which]); };
    switch (row.phase) {
        case 'B': case 'E': case 'M':
            kind = {row.phase, word(Row::NAME_WORD), word(Row::CAT_WORD), word(Row::PID), word(Row::TID)};
            if (row.phase != 'M') break;
            if ((row.given & bit(Row::META_NAME)) != 0) kind[5] = words.code(texts_[Row::META_NAME]);
            if ((row.given & bit(Row::META_LABELS)) != 0) kind[6] = words.code(texts_[Row::META_LABELS]);
            break;
        case 'C': case 'i': case 'I': case 'n': {
            kind[1] = word(Row::NAME_WORD);
            kind[2] = says(row, Row::ALLOCATED) || says(row, Row::RESIDENT);
            sampled = sample(row, other) && sampled;
            break;
        }
        default: break;
    }
    other.kind = kinds_.code(kind);
}

}  // namespace hpuprof
