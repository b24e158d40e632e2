// numpy's searchsorted for numbers that are nearly sorted: each place is looked for from the one before, in steps that
// double, so that numbers close to each other cost a few comparisons rather than one per power of two.
#include <algorithm>

#include "arrays.hpp"

namespace hpuprof {
namespace {

using Integers = Array<std::int64_t>;

template <bool RIGHT>
void places(std::int64_t* found, const std::int64_t* values, std::int64_t count, const std::int64_t* wanted, std::int64_t asked) {
    for (std::int64_t i = 0, at = 0; i < asked; ++i) {
        const std::int64_t number = wanted[i];
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
        found[i] = at = low;
    }
}

}  // namespace

PyObject* search_sorted(PyObject*, PyObject* arguments) {
    PyObject *into, *sorted, *numbers;
    int right;
    if (!PyArg_ParseTuple(arguments, "OOOp:search_sorted", &into, &sorted, &numbers, &right)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Integers found(into, "found", 1, PyBUF_WRITABLE), values(sorted, "values", 1), wanted(numbers, "wanted", 1);
        if (found.rows() != wanted.rows()) throw std::invalid_argument("found has the wrong shape");
        (right ? places<true> : places<false>)(found.begin(), values.begin(), values.rows(), wanted.begin(), wanted.rows());
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
