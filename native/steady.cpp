// The loops of hpuprof/what_if/period.py, which tells what the arrays mean: the longest paths between the ends of chains, and
// the way back along one of them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "samples.hpp"

namespace hpuprof {
namespace {

constexpr double NEVER = -std::numeric_limits<double>::infinity();

using Integers = Array<std::int64_t>;

// A sorted graph with weights of its events and edges, shape (events, samples) and (edges, samples).
struct Run {
    const Integers before, first, source;
    const Array<double> step, delay;

    Run(PyObject* const* a, std::int64_t chains)
        : before(a[0], "before", 1), first(a[1], "first", 1), source(a[2], "source", 1), step(a[3], "step", 2),
          delay(a[4], "delay", 2) {
        if (const char* found = wrong(before, first, source, chains)) throw std::invalid_argument(found);
        if (step.rows() != before.rows() || delay.rows() != source.rows() || delay.columns() != samples())
            throw std::invalid_argument("weights have the wrong shape");
    }
    std::int64_t events() const { return before.rows(); }
    std::int64_t samples() const { return step.columns(); }
};

// When each event happens if one chain ended at 0 and nothing else ever did; `reached`: whether it waits for that at all.
// SAMPLES: how many there are, 0: any number.
template <std::int64_t SAMPLES>
void pass(const Run& run, std::int64_t chain, double* times, std::vector<char>& reached) {
    const std::int64_t samples = SAMPLES > 0 ? SAMPLES : run.samples();
    for (std::int64_t place = 0; place < run.events(); ++place) {
        const std::int64_t behind = run.before.begin()[place];
        const double* __restrict step = run.step.begin() + place * samples;
        double* __restrict latest = times + place * samples;
        bool found = behind >= 0 ? reached[behind] != 0 : behind == ~(chain + 1);
        if (found) {
            const double* __restrict last = behind >= 0 ? times + behind * samples : nullptr;
            for (std::int64_t i = 0; i < samples; ++i) latest[i] = last != nullptr ? last[i] + step[i] : step[i];
        }
        for (std::int64_t edge = run.first.begin()[place]; edge < run.first.begin()[place + 1]; ++edge) {
            const std::int64_t source = run.source.begin()[edge];
            if (!reached[source]) continue;
            const double *__restrict from = times + source * samples, *__restrict delay = run.delay.begin() + edge * samples;
            if (!found)
                for (std::int64_t i = 0; i < samples; ++i) latest[i] = from[i] + delay[i];
            else
                for (std::int64_t i = 0; i < samples; ++i) latest[i] = std::max(latest[i], from[i] + delay[i]);
            found = true;
        }
        reached[place] = found;
    }
}

void end_paths_of(PyObject* const (&a)[8]) {
    const Array<double> out(a[0], "out", 2, PyBUF_WRITABLE);
    const std::int64_t count = Integers(a[6], "chains", 1).rows();
    const Places chains(a[6], "chains", count, 1 << 30);
    const Run run(a + 1, 1 << 30);
    const Places last(a[7], "last", count, run.events());
    if (out.rows() != count * count || out.columns() != run.samples()) throw std::invalid_argument("out has the wrong shape");
    const std::unique_ptr<double[]> times(new double[run.events() * run.samples()]);  // as far as they are reached
    std::vector<char> reached(run.events());
    for (std::int64_t j = 0; j < count; ++j) {
        run.samples() == 8 ? pass<8>(run, chains[j], times.get(), reached) : pass<0>(run, chains[j], times.get(), reached);
        for (std::int64_t i = 0; i < count; ++i) {
            double* into = out.begin() + (j * count + i) * run.samples();
            const double* from = times.get() + last[i] * run.samples();
            reached[last[i]] ? std::copy_n(from, run.samples(), into) : std::fill_n(into, run.samples(), NEVER);
        }
    }
}

// From an event back to where the run begins: the events, and the edge through which each waited, -1: its chain.
std::int64_t walk(PyObject* const (&a)[8], std::int64_t place, std::int64_t chain, std::int64_t sample, double tie) {
    const Array<std::int64_t> out(a[0], "out", 2, PyBUF_WRITABLE);
    const Run run(a + 1, 1 << 30);
    const Array<double> times(a[6], "times", 2);
    const std::int64_t samples = run.samples();
    if (out.rows() != run.events() || out.columns() != 2 || times.rows() != run.events() || times.columns() != samples ||
        sample < 0 || sample >= samples || place >= run.events())
        throw std::invalid_argument("the walk does not fit the graph");
    std::int64_t count = 0;
    while (place >= 0) {
        const auto at = [&](std::int64_t p) { return times.begin()[p * samples + sample]; };
        const std::int64_t behind = run.before.begin()[place];
        const double step = run.step.begin()[place * samples + sample];
        const double chained = behind >= 0 ? at(behind) + step : behind == ~(chain + 1) ? step : NEVER;
        std::int64_t through = -1;
        double latest = NEVER;
        for (std::int64_t edge = run.first.begin()[place]; edge < run.first.begin()[place + 1]; ++edge) {
            const double come = at(run.source.begin()[edge]) + run.delay.begin()[edge * samples + sample];
            if (through < 0 || come > latest) through = edge, latest = come;
        }
        if (chained >= at(place) - tie) through = -1;
        out.begin()[2 * count] = place;
        out.begin()[2 * count++ + 1] = through;
        place = through < 0 ? behind : run.source.begin()[through];
    }
    return count;
}

}  // namespace

PyObject* end_paths(PyObject*, PyObject* arguments) {
    PyObject* a[8];
    if (!PyArg_ParseTuple(arguments, "O(OOO)(OO)(OO):end_paths", &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6], &a[7]))
        return nullptr;
    return guarded([&]() -> PyObject* {
        end_paths_of(a);
        Py_RETURN_NONE;
    });
}

PyObject* walk_back(PyObject*, PyObject* arguments) {
    PyObject* a[8] = {};
    long long place, chain, sample;
    double tie;
    if (!PyArg_ParseTuple(arguments, "O(OOO)(OO)O(LLL)d:walk_back", &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6], &place,
                          &chain, &sample, &tie))
        return nullptr;
    return guarded([&]() -> PyObject* { return PyLong_FromLongLong(walk(a, place, chain, sample, tie)); });
}

}  // namespace hpuprof
