// The loops of hpuprof/what_if/play.py, which tells what the arrays mean: the weights of a schedule's graph, and when the
// last of each step's rows is done.
#include <algorithm>
#include <cmath>
#include <limits>

#include "samples.hpp"

namespace hpuprof {
namespace {

using Integers = Array<std::int64_t>;

// Sums are rounded to multiples of 2^-10. Adding 1.5 * 2^42 leaves a double no finer bits, and is exact up to 2^41.
constexpr double COARSE = 6597069766656.0, EXACT = 2199023255552.0;

template <class Value>
void round_into(double* __restrict out, std::int64_t samples, Value value) {
    bool large = false;
    for (std::int64_t i = 0; i < samples; ++i) {
        const double sum = value(i);
        large |= !(std::fabs(sum) <= EXACT);
        out[i] = (sum + COARSE) - COARSE;
    }
    if (large)
        for (std::int64_t i = 0; i < samples; ++i) out[i] = std::nearbyint(value(i) * 1024.0) * (1.0 / 1024.0);
}

void round_sum(double* out, std::int64_t samples, Row one, Row other) {
    if (!one.wide) std::swap(one, other);
    if (other.wide)
        round_into(out, samples, [=](std::int64_t i) { return one.at[i] + other.at[i]; });
    else if (one.wide)
        round_into(out, samples, [one, more = *other.at](std::int64_t i) { return one.at[i] + more; });
    else {
        double sum;
        round_into(&sum, 1, [&](std::int64_t) { return *one.at + *other.at; });
        std::fill_n(out, samples, sum);
    }
}

// Indices into an array of `below` rows; `none`: whether -1 may stand for none.
class Places {
  public:
    Places(PyObject* array, const std::string& name, std::int64_t count, std::int64_t below, bool none = false)
        : values_(array, name, 1) {
        bool right = values_.rows() == count;
        for (std::int64_t i = 0; right && i < count; ++i) right = (*this)[i] >= (none ? -1 : 0) && (*this)[i] < below;
        if (!right) throw std::invalid_argument(name + " has the wrong shape or holds no places");
    }
    std::int64_t operator[](std::int64_t i) const { return values_.begin()[i]; }

  private:
    Integers values_;
};

void fill(PyObject* const (&a)[15]) {
    const Array<double> step(a[0], "step", 2, PyBUF_WRITABLE), delay(a[1], "delay", 2, PyBUF_WRITABLE);
    const std::int64_t events = step.rows(), edges = delay.rows(), samples = step.columns();
    if (delay.columns() != samples) throw std::invalid_argument("delay has the wrong shape");
    const Weights segment(a[2], "segment", -1, samples), cost(a[3], "cost", segment.rows(), samples);
    const Weights dur(a[4], "dur", -1, samples), gap(a[5], "gap", dur.rows(), samples);
    const Weights latency(a[6], "latency", dur.rows(), samples), tail(a[7], "tail", -1, samples);
    const std::int64_t calls = segment.rows(), rows = dur.rows(), waits = tail.rows();
    const Places previous(a[8], "previous", calls, calls, true), call_at(a[9], "calls", calls, events);
    const Places row_at(a[10], "rows", rows, events), launch_at(a[11], "launches", rows, edges);
    const Places wait_at(a[12], "waits", waits, edges), behind(a[13], "behind", waits, calls, true);
    const Integers waiting(a[14], "waiting", 1);
    if (waiting.rows() != waits) throw std::invalid_argument("waiting has the wrong shape");
    const auto event = [&](std::int64_t place) { return step.begin() + place * samples; };
    const auto edge = [&](std::int64_t place) { return delay.begin() + place * samples; };
    const double zero = 0;
    for (std::int64_t i = 0; i < calls; ++i)
        round_sum(event(call_at[i]), samples, segment.row(i), previous[i] < 0 ? Row{&zero, false} : cost.row(previous[i]));
    for (std::int64_t i = 0; i < rows; ++i) {
        round_sum(event(row_at[i]), samples, gap.row(i), dur.row(i));
        round_sum(edge(launch_at[i]), samples, latency.row(i), dur.row(i));
    }
    for (std::int64_t i = 0; i < waits; ++i) {
        const std::int64_t row = waiting.begin()[i];
        if (behind[i] < 0 && (row < 0 || row >= rows)) throw std::invalid_argument("waiting must be of rows");
        round_sum(edge(wait_at[i]), samples, tail.row(i), behind[i] < 0 ? dur.row(row) : segment.row(behind[i]));
    }
}

void raise(PyObject* const (&a)[4]) {
    const Array<double> latest(a[0], "latest", 2, PyBUF_WRITABLE), times(a[1], "times", 2);
    const std::int64_t samples = latest.columns();
    if (times.columns() != samples) throw std::invalid_argument("times has the wrong shape");
    const std::int64_t count = Integers(a[2], "places", 1).rows();
    const Places places(a[2], "places", count, times.rows()), groups(a[3], "groups", count, latest.rows());
    for (std::int64_t i = 0; i < count; ++i) {
        const double* from = times.begin() + places[i] * samples;
        raise_to(latest.begin() + groups[i] * samples, samples, [from](std::int64_t s) { return from[s]; });
    }
}

}  // namespace

PyObject* play_weights(PyObject*, PyObject* arguments) {
    PyObject* a[15];
    if (!PyArg_ParseTuple(arguments, "(OO)(OO)(OOOO)(OOOOOOO):play_weights", &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6],
                          &a[7], &a[8], &a[9], &a[10], &a[11], &a[12], &a[13], &a[14]))
        return nullptr;
    return guarded([&]() -> PyObject* {
        fill(a);
        Py_RETURN_NONE;
    });
}

PyObject* latest_of_groups(PyObject*, PyObject* arguments) {
    PyObject* a[4];
    if (!PyArg_ParseTuple(arguments, "OO(OO):latest_of_groups", &a[0], &a[1], &a[2], &a[3])) return nullptr;
    return guarded([&]() -> PyObject* {
        raise(a);
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
