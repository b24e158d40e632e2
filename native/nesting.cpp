// Rows of threads as a forest: the loops of hpuprof/analysis/links.py, which tells what the arrays mean.
#include <algorithm>
#include <limits>
#include <vector>

#include "arrays.hpp"
#include "places.hpp"

namespace hpuprof {
namespace {

using Integers = Array<std::int64_t>;
using Tracks = Array<std::int32_t>;
using Stack = std::vector<std::int64_t>;

template <class T>
void same_rows(const Array<T>& array, std::int64_t rows, const char* name) {
    if (array.rows() != rows) throw std::invalid_argument(std::string(name) + " has the wrong shape");
}

// Fills in the row around each, clips ends to it, and returns how many were clipped.
std::int64_t nest(std::int64_t* parent, std::int64_t* end, const Tracks& track, const std::int64_t* start) {
    std::int64_t clipped = 0;
    Stack open;
    for (std::int64_t i = 0; i < track.rows(); ++i) {
        if (i > 0 && track.begin()[i] != track.begin()[i - 1]) open.clear();
        while (!open.empty() && end[open.back()] <= start[i]) open.pop_back();
        parent[i] = open.empty() ? -1 : open.back();
        if (!open.empty() && end[i] > end[open.back()]) {
            end[i] = end[open.back()];
            ++clipped;
        }
        open.push_back(i);
    }
    return clipped;
}

}  // namespace

PyObject* nest_rows(PyObject*, PyObject* arguments) {
    PyObject *parents, *ends, *tracks, *starts;
    if (!PyArg_ParseTuple(arguments, "OOOO:nest_rows", &parents, &ends, &tracks, &starts)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Tracks track(tracks, "track", 1);
        const Integers parent(parents, "parent", 1, PyBUF_WRITABLE), end(ends, "end", 1, PyBUF_WRITABLE), start(starts, "start", 1);
        same_rows(parent, track.rows(), "parent");
        same_rows(end, track.rows(), "end");
        same_rows(start, track.rows(), "start");
        return PyLong_FromLongLong(nest(parent.begin(), end.begin(), track, start.begin()));
    });
}

PyObject* row_stops(PyObject*, PyObject* arguments) {
    PyObject *stops, *parents;
    if (!PyArg_ParseTuple(arguments, "OO:row_stops", &stops, &parents)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Integers stop(stops, "stop", 1, PyBUF_WRITABLE), parent(parents, "parent", 1);
        same_rows(stop, parent.rows(), "stop");
        for (std::int64_t i = 0; i < parent.rows(); ++i) {
            if (parent.begin()[i] >= i) throw std::invalid_argument("parent must come before its rows");
            stop.begin()[i] = i + 1;
        }
        for (std::int64_t i = parent.rows() - 1; i >= 0; --i)
            if (const std::int64_t above = parent.begin()[i]; above >= 0)
                stop.begin()[above] = std::max(stop.begin()[above], stop.begin()[i]);
        Py_RETURN_NONE;
    });
}

PyObject* open_rows(PyObject*, PyObject* arguments) {
    PyObject *into, *tracks, *starts, *ends, *parents;
    long long span;
    if (!PyArg_ParseTuple(arguments, "O(OOOO)L:open_rows", &into, &tracks, &starts, &ends, &parents, &span)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Integers found(into, "found", 2, PyBUF_WRITABLE), start(starts, "start", 1), end(ends, "end", 1), parent(parents, "parent", 1);
        const Tracks track(tracks, "track", 1);
        const std::int64_t rows = track.rows();
        same_rows(start, rows, "start");
        same_rows(end, rows, "end");
        same_rows(parent, rows, "parent");
        if (found.rows() != 2 || found.columns() < 2 * rows) throw std::invalid_argument("found has the wrong shape");
        std::int64_t *when = found.begin(), *row = when + found.columns(), count = 0;
        Stack open;
        const auto add = [&](std::int64_t on, std::int64_t instant, std::int64_t from_then_on) {
            const std::int64_t key = track.begin()[on] * span + instant;
            count -= count > 0 && when[count - 1] == key;
            when[count] = key;
            row[count++] = from_then_on;
        };
        const auto close_within = [&](std::int64_t around) {
            for (; !open.empty() && open.back() != around; open.pop_back())
                add(open.back(), end.begin()[open.back()], parent.begin()[open.back()]);
        };
        for (std::int64_t i = 0; i < rows; ++i) {
            close_within(parent.begin()[i]);
            if (end.begin()[i] <= start.begin()[i]) continue;
            add(i, start.begin()[i], i);
            open.push_back(i);
        }
        close_within(-1);
        return PyLong_FromLongLong(count);
    });
}

PyObject* innermost_rows(PyObject*, PyObject* arguments) {
    PyObject *into, *instants, *rows, *tracks, *asked;
    long long span;
    if (!PyArg_ParseTuple(arguments, "O(OO)(OO)L:innermost_rows", &into, &instants, &rows, &tracks, &asked, &span)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Integers found(into, "found", 1, PyBUF_WRITABLE), opened(instants, "opened", 1), row(rows, "row", 1), when(asked, "when", 1);
        const Tracks track(tracks, "track", 1);
        same_rows(found, when.rows(), "found");
        same_rows(track, when.rows(), "track");
        same_rows(row, opened.rows(), "row");
        for (std::int64_t i = 0, at = 0; i < when.rows(); ++i) {
            const std::int64_t instant = std::min<std::int64_t>(std::max<std::int64_t>(when.begin()[i], -1), span - 1);
            at = place_from<true>(at, opened.begin(), opened.rows(), track.begin()[i] * span + instant);
            found.begin()[i] = at > 0 ? row.begin()[at - 1] : -1;
        }
        Py_RETURN_NONE;
    });
}

PyObject* rows_around(PyObject*, PyObject* arguments) {
    PyObject *counts, *marks, *stops;
    if (!PyArg_ParseTuple(arguments, "OOO:rows_around", &counts, &marks, &stops)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Integers count(counts, "count", 1, PyBUF_WRITABLE), stop(stops, "stop", 1);
        const Array<bool> marked(marks, "marked", 1);
        const std::int64_t rows = stop.rows();
        same_rows(count, rows, "count");
        same_rows(marked, rows, "marked");
        Stack open;
        for (std::int64_t i = 0; i < rows; ++i) {
            while (!open.empty() && open.back() <= i) open.pop_back();
            count.begin()[i] = static_cast<std::int64_t>(open.size());
            if (marked.begin()[i]) open.push_back(stop.begin()[i]);
        }
        Py_RETURN_NONE;
    });
}

PyObject* in_no_other(PyObject*, PyObject* arguments) {
    PyObject *into, *which, *begins, *ends;
    long long count;
    if (!PyArg_ParseTuple(arguments, "OO(OO)L:in_no_other", &into, &which, &begins, &ends, &count)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Array<bool> outer(into, "outer", 1, PyBUF_WRITABLE);
        const Tracks codes(which, "codes", 1);
        const Integers begin(begins, "begin", 1), end(ends, "end", 1);
        same_rows(outer, codes.rows(), "outer");
        same_rows(begin, codes.rows(), "begin");
        same_rows(end, codes.rows(), "end");
        std::vector<std::int64_t> reach(std::max<std::int64_t>(count, 0), std::numeric_limits<std::int64_t>::min());
        for (std::int64_t i = 0; i < codes.rows(); ++i) {
            if (codes.begin()[i] < 0 || codes.begin()[i] >= count) throw std::invalid_argument("codes must be less than their number");
            auto& until = reach[codes.begin()[i]];
            outer.begin()[i] = begin.begin()[i] >= until;
            until = std::max(until, end.begin()[i]);
        }
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
