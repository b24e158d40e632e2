// The loops of hpuprof/what_if/play.py, which tells what the arrays mean: the weights of a schedule's graph, and when the
// last of each step's rows is done.
#include <algorithm>
#include <utility>
#include <vector>

#include "samples.hpp"

namespace hpuprof {
namespace {

using Integers = Array<std::int64_t>;

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

void fill(PyObject* const (&a)[22]) {
    const Array<double> step(a[0], "step", 2, PyBUF_WRITABLE), delay(a[1], "delay", 2, PyBUF_WRITABLE);
    const std::int64_t events = step.rows(), edges = delay.rows(), samples = step.columns();
    if (delay.columns() != samples) throw std::invalid_argument("delay has the wrong shape");
    const Array<double> segment(a[2], "segment", 2), cost(a[3], "cost", 2), scale(a[12], "scale", 2);
    const std::int64_t calls = segment.rows();
    if (cost.rows() != calls || cost.columns() != samples || segment.columns() != samples || scale.columns() != samples)
        throw std::invalid_argument("work has the wrong shape");
    const Column dur(a[4], "dur", -1);
    const std::int64_t rows = dur.rows();
    const Column gap(a[5], "gap", rows), latency(a[6], "latency", rows), copies(a[7], "copies", rows), tail(a[8], "tail", -1);
    const Column graph_gap(a[9], "graph_gap", samples), graph_latency(a[10], "graph_latency", samples);
    const Column copy(a[11], "copy", samples);
    const std::int64_t waits = tail.rows();
    const Places length(a[13], "length", rows, scale.rows(), true), captured(a[14], "captured", rows, 2);
    const Places previous(a[15], "previous", calls, calls, true), call_at(a[16], "calls", calls, events);
    const Places row_at(a[17], "rows", rows, events), launch_at(a[18], "launches", rows, edges);
    const Places wait_at(a[19], "waits", waits, edges), behind(a[20], "behind", waits, calls, true);
    const Integers waiting(a[21], "waiting", 1);
    if (waiting.rows() != waits) throw std::invalid_argument("waiting has the wrong shape");
    const auto event = [&](std::int64_t place) { return step.begin() + place * samples; };
    const auto edge = [&](std::int64_t place) { return delay.begin() + place * samples; };
    const auto of_call = [&](const Array<double>& all, std::int64_t call) { return Row{all.begin() + call * samples, true}; };
    const double zero = 0;
    for (std::int64_t i = 0; i < calls; ++i)
        round_sum(event(call_at[i]), samples, of_call(segment, i),
                  previous[i] < 0 ? Row{&zero, false} : of_call(cost, previous[i]));
    // In a graph durations, gaps and latencies are the sample's.
    std::vector<double> lasts(samples), after(samples);
    const auto lasting = [&](std::int64_t row) {
        const double whole = dur[row];
        if (length[row] < 0) return Row{dur.begin() + row, false};
        const double* by = scale.begin() + length[row] * samples;
        for (std::int64_t i = 0; i < samples; ++i) lasts[i] = whole * by[i];
        return Row{lasts.data(), true};
    };
    const auto ahead = [&](std::int64_t row, const Column& recorded, const Column& drawn) {
        if (!captured[row]) return Row{recorded.begin() + row, false};
        const double count = copies[row];
        for (std::int64_t i = 0; i < samples; ++i) after[i] = drawn[i] + count * copy[i];
        return Row{after.data(), true};
    };
    for (std::int64_t i = 0; i < rows; ++i) {
        const Row last = lasting(i);
        round_sum(event(row_at[i]), samples, ahead(i, gap, graph_gap), last);
        round_sum(edge(launch_at[i]), samples, ahead(i, latency, graph_latency), last);
    }
    for (std::int64_t i = 0; i < waits; ++i) {
        const std::int64_t row = waiting.begin()[i];
        if (behind[i] < 0 && (row < 0 || row >= rows)) throw std::invalid_argument("waiting must be of rows");
        round_sum(edge(wait_at[i]), samples, {tail.begin() + i, false}, behind[i] < 0 ? lasting(row) : of_call(segment, behind[i]));
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
    PyObject* a[22];
    if (!PyArg_ParseTuple(arguments, "(OO)(OO)(OOOOO)(OOO)O(OO)(OOOOOOO):play_weights", &a[0], &a[1], &a[2], &a[3], &a[4], &a[5],
                          &a[6], &a[7], &a[8], &a[9], &a[10], &a[11], &a[12], &a[13], &a[14], &a[15], &a[16], &a[17], &a[18],
                          &a[19], &a[20], &a[21]))
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
