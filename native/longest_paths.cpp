// When each event of a sorted graph happens, for all samples: the loop of Graph.solve in hpuprof/what_if/graph.py, which
// tells what the arrays mean.
#include <algorithm>
#include <limits>
#include <optional>

#include "samples.hpp"

namespace hpuprof {
namespace {

constexpr double NEVER = -std::numeric_limits<double>::infinity();
constexpr std::int64_t HUB = -1;

using Integers = Array<std::int64_t>;

// What `take(value)` does with the sums of two rows, given as a function of the sample.
template <class Take>
void with_sum(Row from, Row weight, Take take) {
    if (!from.wide) std::swap(from, weight);
    if (weight.wide)
        take([=](std::int64_t i) { return from.at[i] + weight.at[i]; });
    else if (from.wide)
        take([from, more = *weight.at](std::int64_t i) { return from.at[i] + more; });
    else
        take([sum = *from.at + *weight.at](std::int64_t) { return sum; });
}

void raise_to_sum(double* latest, std::int64_t samples, Row from, Row weight) {
    with_sum(from, weight, [=](auto value) { raise_to(latest, samples, value); });
}

void set_to_sum(double* __restrict latest, std::int64_t samples, Row from, Row weight) {
    with_sum(from, weight, [=](auto value) {
        for (std::int64_t i = 0; i < samples; ++i) latest[i] = value(i);
    });
}

void solve(PyObject* const (&arrays)[8]) {
    const Array<double> times(arrays[0], "times", 2, PyBUF_WRITABLE);
    const std::int64_t events = times.rows(), samples = times.columns();
    const Integers before(arrays[1], "before", 1), first(arrays[2], "first", 1), source(arrays[3], "source", 1);
    if (before.rows() != events) throw std::invalid_argument("before has the wrong shape");
    const Weights step(arrays[4], "step", events, samples), delay(arrays[5], "delay", source.rows(), samples);
    const Weights begin(arrays[6], "begin", -1, samples);
    std::optional<Weights> given;
    if (arrays[7] != Py_None) given.emplace(arrays[7], "given", events, samples);
    if (samples == 0) return;

    const char* found;
    Py_BEGIN_ALLOW_THREADS;
    found = wrong(before, first, source, begin.rows());
    for (std::int64_t place = 0; found == nullptr && place < events; ++place) {
        double* latest = times.begin() + place * samples;
        const auto at = [&](std::int64_t p) { return Row{times.begin() + p * samples, samples > 1}; };
        const double zero = 0;
        if (const std::int64_t behind = before.begin()[place]; behind != HUB)
            set_to_sum(latest, samples, behind >= 0 ? at(behind) : begin.row(~behind - 1), step.row(place));
        else
            std::fill_n(latest, samples, NEVER);
        if (given) raise_to_sum(latest, samples, given->row(place), {&zero, false});
        for (std::int64_t edge = first.begin()[place]; edge < first.begin()[place + 1]; ++edge)
            raise_to_sum(latest, samples, at(source.begin()[edge]), delay.row(edge));
    }
    Py_END_ALLOW_THREADS;
    if (found != nullptr) throw std::invalid_argument(found);
}

}  // namespace

PyObject* longest_paths(PyObject*, PyObject* arguments) {
    PyObject* arrays[8];
    if (!PyArg_ParseTuple(arguments, "O(OOO)(OOOO):longest_paths", &arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4],
                          &arrays[5], &arrays[6], &arrays[7]))
        return nullptr;
    return guarded([&]() -> PyObject* {
        solve(arrays);
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
