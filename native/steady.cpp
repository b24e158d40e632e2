// The loops of hpuprof/what_if/period.py, which tells what the arrays mean: when chains end a run and what decided that, and
// the way back along a longest path.
#include <algorithm>
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

// When each event happens if some chains ended at given times and nothing else ever did, and which of them decided that.
// SAMPLES: how many there are, 0: any number.
template <std::int64_t SAMPLES>
void pass(const Run& run, const std::int64_t* number, const double* values, double* times, double* origins) {
    const std::int64_t samples = SAMPLES > 0 ? SAMPLES : run.samples();
    for (std::int64_t place = 0; place < run.events(); ++place) {
        const std::int64_t behind = run.before.begin()[place], chain = behind < -1 ? number[~behind - 1] : -1;
        const double* __restrict step = run.step.begin() + place * samples;
        double *__restrict latest = times + place * samples, *__restrict origin = origins + place * samples;
        for (std::int64_t i = 0; i < samples; ++i) {
            const double last = behind >= 0 ? times[behind * samples + i] : chain >= 0 ? values[chain * samples + i] : NEVER;
            latest[i] = last + step[i];
            origin[i] = behind >= 0 ? origins[behind * samples + i] : static_cast<double>(chain);
        }
        for (std::int64_t edge = run.first.begin()[place]; edge < run.first.begin()[place + 1]; ++edge) {
            const std::int64_t source = run.source.begin()[edge] * samples;
            const double *__restrict from = times + source, *__restrict led = origins + source;
            const double* __restrict delay = run.delay.begin() + edge * samples;
            for (std::int64_t i = 0; i < samples; ++i) {
                const double come = from[i] + delay[i];
                const bool later = come > latest[i];
                latest[i] = later ? come : latest[i];
                origin[i] = later ? led[i] : origin[i];
            }
        }
    }
}

void end_times_of(PyObject* const (&a)[10]) {
    const Array<double> ends(a[0], "ends", 2, PyBUF_WRITABLE), values(a[7], "values", 2);
    const Array<std::int64_t> before(a[1], "before the ends", 2, PyBUF_WRITABLE);
    const std::int64_t count = Integers(a[8], "chains", 1).rows();
    const Places chains(a[8], "chains", count, 1 << 30);
    std::int64_t highest = 0;
    for (std::int64_t j = 0; j < count; ++j) highest = std::max(highest, chains[j] + 1);
    const Run run(a + 2, 1 << 30);
    const std::int64_t samples = run.samples();
    for (std::int64_t place = 0; place < run.events(); ++place) highest = std::max(highest, ~run.before.begin()[place]);
    const Places last(a[9], "last", count, run.events());
    const auto fits = [&](const auto& array) { return array.rows() == count && array.columns() == samples; };
    if (!fits(ends) || !fits(before) || !fits(values)) throw std::invalid_argument("ends or values have the wrong shape");
    std::vector<std::int64_t> number(highest, -1);
    for (std::int64_t j = 0; j < count; ++j) number[chains[j]] = j;
    // Numbers of chains are exact in a double, and chosen by the same comparison as times.
    const std::unique_ptr<double[]> times(new double[run.events() * samples]), origins(new double[run.events() * samples]);
    const auto of = samples == 8 ? pass<8> : pass<0>;
    Py_BEGIN_ALLOW_THREADS;
    of(run, number.data(), values.begin(), times.get(), origins.get());
    Py_END_ALLOW_THREADS;
    for (std::int64_t j = 0; j < count; ++j) {
        std::copy_n(times.get() + last[j] * samples, samples, ends.begin() + j * samples);
        std::copy_n(origins.get() + last[j] * samples, samples, before.begin() + j * samples);
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

PyObject* end_times(PyObject*, PyObject* arguments) {
    PyObject* a[10];
    if (!PyArg_ParseTuple(arguments, "OO(OOO)(OO)(OOO):end_times", &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6], &a[7],
                          &a[8], &a[9]))
        return nullptr;
    return guarded([&]() -> PyObject* {
        end_times_of(a);
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
