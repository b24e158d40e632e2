// Host work without the profiler's cost, for all samples: the loop of _corrected in hpuprof/what_if/play.py.
#include <algorithm>

#include "arrays.hpp"

namespace hpuprof {
namespace {

void fill(PyObject* const (&arrays)[5], double floor) {
    using Numbers = Array<double>;
    const Numbers left(arrays[0], "left", 2, PyBUF_WRITABLE), work(arrays[1], "work", 1), rows(arrays[2], "rows", 2);
    const Numbers per_row(arrays[3], "per_row", 2), factor(arrays[4], "factor", 2);
    const std::int64_t calls = left.rows(), samples = left.columns(), kinds = rows.columns();
    if (work.rows() != calls) throw std::invalid_argument("work has the wrong shape");
    if (rows.rows() != calls) throw std::invalid_argument("rows has the wrong shape");
    if (per_row.rows() != kinds || per_row.columns() != samples) throw std::invalid_argument("per_row has the wrong shape");
    const bool each = factor.rows() != 1;
    if ((each && factor.rows() != calls) || factor.columns() != samples) throw std::invalid_argument("factor has the wrong shape");
    for (std::int64_t call = 0; call < calls; ++call) {
        double* __restrict out = left.begin() + call * samples;
        const double whole = work.begin()[call], least = floor * whole;
        std::fill_n(out, samples, whole);
        for (std::int64_t kind = 0; kind < kinds; ++kind) {
            const double count = rows.begin()[call * kinds + kind];
            const double* cost = per_row.begin() + kind * samples;
            if (count != 0)
                for (std::int64_t i = 0; i < samples; ++i) out[i] -= count * cost[i];
        }
        const double* by = factor.begin() + (each ? call * samples : 0);
        for (std::int64_t i = 0; i < samples; ++i) out[i] = (out[i] < least ? least : out[i]) * by[i];
    }
}

}  // namespace

PyObject* host_work(PyObject*, PyObject* arguments) {
    PyObject* arrays[5];
    double floor;
    if (!PyArg_ParseTuple(arguments, "O(OOOO)d:host_work", &arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4], &floor))
        return nullptr;
    return guarded([&]() -> PyObject* {
        fill(arrays, floor);
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
