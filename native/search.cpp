// numpy's searchsorted for numbers that are nearly sorted.
#include "arrays.hpp"
#include "places.hpp"

namespace hpuprof {
namespace {

using Integers = Array<std::int64_t>;

template <bool RIGHT>
void places(const Integers& found, const Integers& values, const Integers& wanted) {
    for (std::int64_t i = 0, at = 0; i < wanted.rows(); ++i)
        found.begin()[i] = at = place_from<RIGHT>(at, values.begin(), values.rows(), wanted.begin()[i]);
}

}  // namespace

PyObject* search_sorted(PyObject*, PyObject* arguments) {
    PyObject *into, *sorted, *numbers;
    int right;
    if (!PyArg_ParseTuple(arguments, "OOOp:search_sorted", &into, &sorted, &numbers, &right)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Integers found(into, "found", 1, PyBUF_WRITABLE), values(sorted, "values", 1), wanted(numbers, "wanted", 1);
        if (found.rows() != wanted.rows()) throw std::invalid_argument("found has the wrong shape");
        (right ? places<true> : places<false>)(found, values, wanted);
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
