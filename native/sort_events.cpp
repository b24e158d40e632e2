// The stretches of events that can be computed one after the other: the loop of _order in hpuprof/what_if/graph.py, which
// tells what the arrays mean.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "arrays.hpp"

namespace hpuprof {
namespace {

using Integers = Array<std::int64_t>;
using Numbers = std::vector<std::int64_t>;

struct Stretch {
    std::int64_t line, low, high, piece;
};

// Events by line and position, and the sources of each event's edges.
struct Lines {
    Numbers line, position, length, begin, event, first, source;

    // Raises std::invalid_argument unless positions count the events of each line.
    Lines(const Integers& lengths, const Integers& lines, const Integers& positions, const Integers& sources, const Integers& targets)
        : line(lines.begin(), lines.begin() + lines.rows()), position(positions.begin(), positions.begin() + positions.rows()),
          length(lengths.rows(), 0) {
        const std::int64_t events = lines.rows(), edges = sources.rows();
        if (positions.rows() != events) throw std::invalid_argument("position has the wrong shape");
        if (targets.rows() != edges) throw std::invalid_argument("target has the wrong shape");
        const auto inside = [events](std::int64_t i) { return 0 <= i && i < events; };
        for (const auto which : line) {
            if (which < 0 || which >= lengths.rows()) throw std::invalid_argument("line must be one of those with a length");
            ++length[which];
        }
        if (!std::equal(length.begin(), length.end(), lengths.begin())) throw std::invalid_argument("length must count a line's events");
        begin.assign(length.size() + 1, 0);
        std::partial_sum(length.begin(), length.end(), begin.begin() + 1);
        event.assign(events, -1);
        for (std::int64_t i = 0; i < events; ++i) {
            if (position[i] < 0 || position[i] >= length[line[i]]) throw std::invalid_argument("position must be on its line");
            auto& at = event[begin[line[i]] + position[i]];
            if (at >= 0) throw std::invalid_argument("position must differ on a line");
            at = i;
        }
        first.assign(events + 1, 0);
        for (std::int64_t edge = 0; edge < edges; ++edge) {
            if (!inside(sources.begin()[edge]) || !inside(targets.begin()[edge])) throw std::invalid_argument("edges must be of events");
            ++first[targets.begin()[edge] + 1];
        }
        std::partial_sum(first.begin(), first.end(), first.begin());
        source.resize(edges);
        Numbers next(first.begin(), first.end() - 1);
        for (std::int64_t edge = 0; edge < edges; ++edge) source[next[targets.begin()[edge]]++] = sources.begin()[edge];
    }
};

std::vector<Stretch> sorted(const Lines& of) {
    const std::int64_t lines = static_cast<std::int64_t>(of.length.size());
    Numbers done(lines, 0), passed(lines, 0), ready(lines);  // passed: edges of a line's next event whose sources are done
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> waiting(lines);  // position needed, line that needs it
    std::vector<Stretch> out, runs, alone;
    std::iota(ready.begin(), ready.end(), 0);
    for (std::int64_t piece = 0; !ready.empty();) {
        runs.clear();
        alone.clear();
        for (const auto which : ready) {
            std::int64_t stop = done[which], edge = passed[which];
            for (; stop < of.length[which]; ++stop, edge = 0) {
                const std::int64_t event = of.event[of.begin[which] + stop], low = of.first[event], high = of.first[event + 1];
                for (; low + edge < high; ++edge)
                    if (const auto from = of.source[low + edge]; of.position[from] >= done[of.line[from]]) {
                        waiting[of.line[from]].emplace_back(of.position[from], which);
                        break;
                    }
                if (low + edge < high) break;
            }
            passed[which] = edge;
            const std::int64_t low = done[which];
            if (stop > low + 1)
                runs.push_back({which, low, stop, piece + static_cast<std::int64_t>(runs.size())});
            else if (stop > low)
                alone.push_back({which, low, stop, 0});
        }
        piece += static_cast<std::int64_t>(runs.size());
        for (auto& one : alone) one.piece = piece;
        piece += !alone.empty();
        runs.insert(runs.end(), alone.begin(), alone.end());
        ready.clear();
        for (const auto& one : runs) {
            done[one.line] = one.high;
            auto& still = waiting[one.line];
            const auto left = std::partition(still.begin(), still.end(), [&](const auto& need) { return need.first >= one.high; });
            for (auto woken = left; woken != still.end(); ++woken) ready.push_back(woken->second);
            still.erase(left, still.end());
        }
        std::sort(ready.begin(), ready.end());
        out.insert(out.end(), runs.begin(), runs.end());
    }
    return out;
}

PyObject* sort_events_of(PyObject* const (&arrays)[6]) {
    const Integers stretches(arrays[0], "stretches", 2, PyBUF_WRITABLE), length(arrays[1], "length", 1), line(arrays[2], "line", 1);
    const Integers position(arrays[3], "position", 1), source(arrays[4], "source", 1), target(arrays[5], "target", 1);
    if (stretches.rows() != line.rows() || stretches.columns() != 4) throw std::invalid_argument("stretches has the wrong shape");
    const auto found = sorted(Lines(length, line, position, source, target));
    auto* at = stretches.begin();
    for (const auto& [which, low, high, piece] : found)
        for (const auto value : {which, low, high, piece}) *at++ = value;
    return PyLong_FromSize_t(found.size());
}

}  // namespace

PyObject* sort_events(PyObject*, PyObject* arguments) {
    PyObject* arrays[6];
    if (!PyArg_ParseTuple(arguments, "O(OOOOO):sort_events", &arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4],
                          &arrays[5]))
        return nullptr;
    return guarded([&] { return sort_events_of(arrays); });
}

}  // namespace hpuprof
