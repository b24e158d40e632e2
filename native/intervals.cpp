// Unions, intersections and lengths of half-open intervals, the loops of hpuprof/model/intervals.py, which tells what the
// arrays mean. Each is one pass over both sides, and leaps over what lies far from the other.
#include <algorithm>
#include <cstring>

#include "arrays.hpp"
#include "places.hpp"

namespace hpuprof {
namespace {

using Integers = Array<std::int64_t>;

// Intervals that a call reads; ends and starts ascend, but for those of a union.
struct Given {
    const Integers starts, ends;
    const std::int64_t *start, *end, count;

    Given(PyObject* begins, PyObject* stops)
        : starts(begins, "start", 1), ends(stops, "end", 1), start(starts.begin()), end(ends.begin()), count(starts.rows()) {
        if (ends.rows() != count) throw std::invalid_argument("end has the wrong shape");
    }
};

// Intervals that a call fills: starts in the first row of an array, ends in the second.
struct Found {
    const Integers array;
    std::int64_t *start, *end, count = 0;

    Found(PyObject* into, std::int64_t most)
        : array(into, "found", 2, PyBUF_WRITABLE), start(array.begin()), end(start + (array.rows() == 2 ? array.columns() : 0)) {
        if (array.rows() != 2 || array.columns() < most) throw std::invalid_argument("found has the wrong shape");
    }
    void add(std::int64_t low, std::int64_t high) {
        start[count] = low;
        end[count++] = high;
    }
};

// Returns false where starts do not ascend.
bool unite(Found& found, const Given& of, const bool* rows) {
    std::int64_t reach = 0, before = 0;
    for (std::int64_t i = 0; i < of.count; ++i) {
        if (rows != nullptr && !rows[i]) {
            const void* next = std::memchr(rows + i, 1, of.count - i);
            if (next == nullptr) break;
            i = static_cast<const bool*>(next) - rows;
        }
        const std::int64_t low = of.start[i], high = of.end[i];
        if (high <= low) continue;
        if (found.count == 0 || low > reach) {
            if (found.count != 0) found.end[found.count - 1] = reach;
            found.add(low, reach = high);
        } else {
            if (low < before) return false;
            reach = std::max(reach, high);
        }
        before = low;
    }
    if (found.count != 0) found.end[found.count - 1] = reach;
    return true;
}

void intersect(Found& found, const Given& a, const Given& b) {
    for (std::int64_t i = 0, at = 0; i < b.count; ++i) {
        at = place_from<true>(at, a.end, a.count, b.start[i]);
        for (std::int64_t k = at; k < a.count && a.start[k] < b.end[i]; ++k) {
            const std::int64_t low = std::max(a.start[k], b.start[i]), high = std::min(a.end[k], b.end[i]);
            if (low < high) {
                if (found.count == found.array.columns()) throw std::invalid_argument("intervals must be disjoint and in order");
                found.add(low, high);
            }
        }
    }
}

void subtract(Found& found, const Given& a, const Given& b) {
    for (std::int64_t i = 0, at = 0; i < a.count; ++i) {
        at = place_from<true>(at, b.end, b.count, a.start[i]);
        std::int64_t low = a.start[i];
        const auto keep = [&](std::int64_t high) {
            if (low >= high) return;
            if (found.count == found.array.columns()) throw std::invalid_argument("intervals must be disjoint and in order");
            found.add(low, high);
        };
        for (std::int64_t k = at; k < b.count && b.start[k] < a.end[i]; ++k) {
            keep(b.start[k]);
            low = std::max(low, b.end[k]);
        }
        keep(a.end[i]);
    }
}

void merge(Found& found, const Given& a, const Given& b) {
    for (std::int64_t i = 0, k = 0; i < a.count || k < b.count;) {
        const bool first = k == b.count || (i < a.count && a.start[i] <= b.start[k]);
        const std::int64_t low = first ? a.start[i] : b.start[k], high = first ? a.end[i++] : b.end[k++];
        if (low >= high) continue;
        if (found.count == 0 || low > found.end[found.count - 1])
            found.add(low, high);
        else
            found.end[found.count - 1] = std::max(found.end[found.count - 1], high);
    }
}

}  // namespace

PyObject* unite_intervals(PyObject*, PyObject* arguments) {
    PyObject *into, *starts, *ends, *marked;
    if (!PyArg_ParseTuple(arguments, "OOOO:unite_intervals", &into, &starts, &ends, &marked)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Given of(starts, ends);
        Found found(into, of.count);
        if (marked == Py_None) return PyLong_FromLongLong(unite(found, of, nullptr) ? found.count : -1);
        const Array<bool> rows(marked, "rows", 1);
        if (rows.rows() != of.count) throw std::invalid_argument("rows has the wrong shape");
        return PyLong_FromLongLong(unite(found, of, rows.begin()) ? found.count : -1);
    });
}

PyObject* combine_intervals(PyObject*, PyObject* arguments) {
    PyObject *into, *starts, *ends, *others, *stops;
    const char* how;
    if (!PyArg_ParseTuple(arguments, "sO(OO)(OO):combine_intervals", &how, &into, &starts, &ends, &others, &stops)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Given a(starts, ends), b(others, stops);
        Found found(into, a.count + b.count);
        const std::string combine = how;
        if (combine != "and" && combine != "or" && combine != "without") throw std::invalid_argument("how must be and, or, without");
        (combine == "and" ? intersect : combine == "or" ? merge : subtract)(found, a, b);
        return PyLong_FromLongLong(found.count);
    });
}

PyObject* covered_before(PyObject*, PyObject* arguments) {
    PyObject *into, *starts, *ends, *before, *instants;
    if (!PyArg_ParseTuple(arguments, "O(OO)OO:covered_before", &into, &starts, &ends, &before, &instants)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Integers covered(into, "covered", 1, PyBUF_WRITABLE), lengths(before, "lengths", 1), when(instants, "when", 1);
        const Given of(starts, ends);
        if (covered.rows() != when.rows()) throw std::invalid_argument("covered has the wrong shape");
        if (lengths.rows() != of.count + 1) throw std::invalid_argument("lengths has the wrong shape");
        for (std::int64_t i = 0, at = 0; i < when.rows(); ++i) {
            const std::int64_t now = when.begin()[i];
            at = place_from<true>(at, of.start, of.count, now);
            covered.begin()[i] = lengths.begin()[at] - (at > 0 && of.end[at - 1] > now ? of.end[at - 1] - now : 0);
        }
        Py_RETURN_NONE;
    });
}

PyObject* contains_instants(PyObject*, PyObject* arguments) {
    PyObject *into, *starts, *ends, *instants;
    if (!PyArg_ParseTuple(arguments, "O(OO)O:contains_instants", &into, &starts, &ends, &instants)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Array<bool> inside(into, "inside", 1, PyBUF_WRITABLE);
        const Integers when(instants, "when", 1);
        const Given of(starts, ends);
        if (inside.rows() != when.rows()) throw std::invalid_argument("inside has the wrong shape");
        for (std::int64_t i = 0, at = 0; i < when.rows(); ++i) {
            const std::int64_t now = when.begin()[i];
            at = place_from<true>(at, of.start, of.count, now);
            inside.begin()[i] = at > 0 && now < of.end[at - 1];
        }
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
