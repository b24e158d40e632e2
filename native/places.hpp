// Where a number lies among ascending ones, looked for from a place nearby.
#pragma once

#include <cstdint>

namespace hpuprof {

// Returns how many of the values are less than the number (RIGHT: or equal), searching from `at` in steps that double, so
// that numbers close to each other cost a few comparisons rather than one per power of two.
template <bool RIGHT>
std::int64_t place_from(std::int64_t at, const std::int64_t* values, std::int64_t count, std::int64_t number) {
    const auto before = [&](std::int64_t place) { return RIGHT ? values[place] <= number : values[place] < number; };
    std::int64_t low = at, high = at, step = 1;  // all before `low` lie before the number, none from `high` on does
    if (at < count && before(at)) {
        for (low = at + 1, high = count; low + step <= count; low += step, step *= 2)
            if (!before(low + step - 1)) {
                high = low + step - 1;
                break;
            }
    } else if (at > 0 && !before(at - 1)) {
        for (high = at - 1, low = 0; high - step >= 0; high -= step, step *= 2)
            if (before(high - step)) {
                low = high - step + 1;
                break;
            }
    }
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        (before(middle) ? low : high) = before(middle) ? middle + 1 : middle;
    }
    return low;
}

}  // namespace hpuprof
