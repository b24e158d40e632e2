// The loop of `pass_through` in hpuprof/what_if/play.py, which tells what the arrays mean: a schedule played again and again,
// for a few samples at a time. Weights are made where they are used; those that no sample changes, once.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "samples.hpp"

namespace hpuprof {
namespace {

constexpr double NEVER = -std::numeric_limits<double>::infinity();
constexpr std::int64_t FEW = 8, MANY = 16;  // samples at a time: more keep the processor busy, fewer waste less at the end

using Integers = Array<std::int64_t>;
using Table = Array<double>;
using Narrow = double __attribute__((vector_size(16)));  // on every machine
using Wide = double __attribute__((vector_size(32)));
// One number for each of them, in vectors: by themselves compilers (GCC 12) take them one by one.
template <std::int64_t WIDTH, class Vector>
struct alignas(sizeof(Vector)) Block {
    static constexpr std::int64_t LANES = sizeof(Vector) / sizeof(double), VECTORS = WIDTH / LANES;

    Vector vectors[VECTORS];

    static Block filled(double value) {
        Block out;
        for (Vector& vector : out.vectors) vector = value - Vector{};
        return out;
    }
    double operator[](std::int64_t i) const { return vectors[i / LANES][i % LANES]; }
    void set(std::int64_t i, double value) { vectors[i / LANES][i % LANES] = value; }

    template <class Operate>
    static Block each(const Block& a, const Block& b, Operate operate) {
        Block out;
        for (std::int64_t i = 0; i < VECTORS; ++i) operate(out.vectors[i], a.vectors[i], b.vectors[i]);
        return out;
    }
    friend Block operator+(const Block& a, const Block& b) {
        return each(a, b, [](Vector& z, const Vector& x, const Vector& y) { z = x + y; });
    }
    friend Block operator-(const Block& a, const Block& b) {
        return each(a, b, [](Vector& z, const Vector& x, const Vector& y) { z = x - y; });
    }
    friend Block operator*(const Block& a, const Block& b) {
        return each(a, b, [](Vector& z, const Vector& x, const Vector& y) { z = x * y; });
    }
    // Unlike raise_to, one instruction: weights are numbers.
    friend void raise(Block& latest, const Block& come) {
        latest = each(latest, come, [](Vector& z, const Vector& x, const Vector& y) { z = y > x ? y : x; });
    }
    friend double largest(const Block& block) {
        double most = 0;
        for (std::int64_t i = 0; i < WIDTH; ++i) most = std::max(most, std::fabs(block[i]));
        return most;
    }
};

// Host calls and device rows as Python has them.
struct Calls {
    const Column segment, cost;
    const Table segment_rows, cost_rows, graph_costs;
    const Places main;

    Calls(PyObject* const* a)
        : segment(a[0], "segment", -1), cost(a[2], "cost", segment.rows()), segment_rows(a[1], "segment_rows", 2),
          cost_rows(a[3], "cost_rows", 2), graph_costs(a[4], "graph_costs", 2), main(a[5], "main", segment.rows(), 2) {
        for (const Table* table : {&segment_rows, &cost_rows, &graph_costs})
            if (table->rows() != segment.rows()) throw std::invalid_argument("rows of calls have the wrong shape");
    }
};

struct Rows {
    const Column dur, gap, latency, copies;
    const Places length, captured;

    Rows(PyObject* const* a, std::int64_t lengths)
        : dur(a[0], "dur", -1), gap(a[1], "gap", dur.rows()), latency(a[2], "latency", dur.rows()),
          copies(a[3], "copies", dur.rows()), length(a[4], "length", dur.rows(), lengths, true),
          captured(a[5], "captured", dur.rows(), 2) {}
};

// What samples cost: tables of shape (costs, samples).
struct Sample {
    const Table per_row, factor, graph_costs, drawn, scale;

    Sample(PyObject* const* a)
        : per_row(a[0], "per_row", 2), factor(a[1], "factor", 2), graph_costs(a[2], "graph_costs", 2), drawn(a[3], "drawn", 2),
          scale(a[4], "scale", 2) {
        for (const Table* table : {&per_row, &factor, &graph_costs, &drawn, &scale})
            if (table->columns() != per_row.columns()) throw std::invalid_argument("samples have the wrong shape");
        if (factor.rows() != 2 || drawn.rows() != 3) throw std::invalid_argument("costs of samples have the wrong shape");
    }

    // Some samples of a table; behind the last one it is repeated.
    template <class B>
    static std::vector<B> some(const Table& table, std::int64_t low) {
        std::vector<B> out(table.rows());
        for (std::int64_t row = 0; row < table.rows(); ++row)
            for (std::int64_t i = 0; i < B::LANES * B::VECTORS; ++i)
                out[row].set(i, table.begin()[row * table.columns() + std::min(low + i, table.columns() - 1)]);
        return out;
    }
};

struct Topology {
    const Integers before, first, source;
    const Places calls, rows, launches, waits, previous, thread, last, closing, behind, ends, row_step, waiting, picks, finals;

    Topology(PyObject* const* a, std::int64_t count, std::int64_t device, std::int64_t chains, std::int64_t steps)
        : before(a[0], "before", 1), first(a[1], "first", 1), source(a[2], "source", 1),
          calls(a[3], "calls", count, before.rows()), rows(a[4], "rows", device, before.rows()),
          launches(a[5], "launches", device, source.rows()), waits(a[6], "waits", source.rows() - device, source.rows()),
          previous(a[7], "previous", count, count, true), thread(a[8], "thread", count, chains),
          last(a[9], "last", -1, before.rows(), true), closing(a[10], "closing", -1, count),
          behind(a[11], "behind", waits.rows(), count, true), ends(a[12], "ends", steps, before.rows()),
          row_step(a[13], "row_step", device, steps), waiting(a[14], "waiting", waits.rows(), std::max(count, device)),
          picks(a[15], "picks", -1, before.rows()), finals(a[16], "finals", -1, before.rows()) {
        if (const char* found = wrong(before, first, source, chains)) throw std::invalid_argument(found);
        if (count + device != before.rows() || last.rows() > chains) throw std::invalid_argument("events do not fit together");
        for (std::int64_t i = 0; i < waits.rows(); ++i)
            if (behind[i] < 0 && waiting[i] >= device) throw std::invalid_argument("waiting must be of rows");
    }
};

// What is played comes to: tables of shape (what, samples).
struct Results {
    const Table done, work, ends, picked, after;

    Results(PyObject* const* a)
        : done(a[0], "done", 2, PyBUF_WRITABLE), work(a[1], "work", 2, PyBUF_WRITABLE), ends(a[2], "ends", 2, PyBUF_WRITABLE),
          picked(a[3], "picked", 2, PyBUF_WRITABLE), after(a[4], "after", 2, PyBUF_WRITABLE) {
        for (const Table* table : {&done, &work, &ends, &picked, &after})
            if (table->columns() != samples()) throw std::invalid_argument("results have the wrong shape");
    }
    std::int64_t samples() const { return done.columns(); }
};

// A weight of the graph: the same for all samples, or where its block is.
struct Weight {
    double fixed = 0;
    std::int32_t block = -1;
};

struct Event {
    Weight step;
    std::int32_t behind;   // as `Graph.before`
    std::int32_t edges;    // where the next event's begin
    std::int32_t of = -1;  // the step that is not complete before it; -1: calls
};

struct Edge {
    Weight delay;
    std::int32_t source;
};

double rounded(double sum) {
    double out;
    round_into(&out, 1, [&](std::int64_t) { return sum; });
    return out;
}

// A schedule as it is played: weights that no sample changes, and where the blocks of others are.
struct Layout {
    const Calls& calls;
    const Rows& rows;
    const Column& tail;
    const Topology& t;
    const double floor;
    const bool host;
    std::vector<Event> events;
    std::vector<Edge> edges;
    std::vector<std::int32_t> slot;  // by call: where its segment is kept, -1: nowhere; none without the host
    std::vector<char> launching;     // by call: whether it launches graphs
    std::vector<std::int64_t> wide_rows, wide_waits;
    std::int32_t slots = 0, blocks;  // of calls, then of rows and waits that samples change

    Layout(const Calls& calls, const Rows& rows, const Column& tail, const Topology& topology, double floor, bool host)
        : calls(calls), rows(rows), tail(tail), t(topology), floor(floor), host(host), events(topology.before.rows()),
          edges(topology.source.rows()), slot(host ? calls.segment.rows() : 0, -1), launching(slot.size()),
          blocks(static_cast<std::int32_t>(slot.size())) {
        for (std::size_t place = 0; place < events.size(); ++place) {
            events[place].behind = static_cast<std::int32_t>(t.before.begin()[place]);
            events[place].edges = static_cast<std::int32_t>(t.first.begin()[place + 1]);
        }
        for (std::size_t edge = 0; edge < edges.size(); ++edge) edges[edge].source = static_cast<std::int32_t>(t.source.begin()[edge]);
        for (std::int32_t call = 0; call < blocks; ++call) {
            const double* counts = calls.graph_costs.begin() + call * calls.graph_costs.columns();
            launching[call] = std::any_of(counts, counts + calls.graph_costs.columns(), [](double count) { return count != 0; });
            events[t.calls[call]].step.block = call;
        }
        for (std::int64_t row = 0; row < t.rows.rows(); ++row) {
            Event& event = events[t.rows[row]];
            Weight& launch = edges[t.launches[row]].delay;
            event.of = static_cast<std::int32_t>(t.row_step[row]);
            if (rows.captured[row] != 0 || rows.length[row] >= 0) {
                wide_rows.push_back(row);
                event.step.block = blocks++;
                launch.block = blocks++;
            } else {
                event.step.fixed = rounded(rows.gap[row] + rows.dur[row]);
                launch.fixed = rounded((host ? rows.latency[row] : 0.0) + rows.dur[row]);
            }
        }
        for (std::int64_t wait = 0; wait < t.waits.rows(); ++wait) {
            Weight& delay = edges[t.waits[wait]].delay;
            const std::int64_t behind = t.behind[wait];
            if (behind < 0 && rows.length[t.waiting[wait]] < 0)
                delay.fixed = rounded(tail[wait] + rows.dur[t.waiting[wait]]);
            else if (behind >= 0 && !host)
                delay.fixed = NEVER;
            else {
                wide_waits.push_back(wait);
                delay.block = blocks++;
                if (behind >= 0 && slot[behind] < 0) slot[behind] = slots++;
            }
        }
    }
};

template <std::int64_t WIDTH, class Vector>
class Player {
    using B = Block<WIDTH, Vector>;

  public:
    explicit Player(const Layout& layout)
        : l_(layout), blocks_(new B[layout.blocks]), kept_(new B[layout.slots]), cost_(new B[layout.slot.size()]),
          times_(new B[layout.events.size()]), closing_(layout.t.closing.rows()), reached_(layout.events.size()) {}

    // Play the samples from `low` on.
    void play(const Sample& sample, std::int64_t low, const Weights& begin, const Results& out) {
        const std::int64_t steps = l_.t.ends.rows(), some = std::min(WIDTH, out.samples() - low), picks = l_.t.picks.rows();
        const auto put = [&](const Table& into, std::int64_t row, const B& block) {
            for (std::int64_t i = 0; i < some; ++i) into.begin()[row * into.columns() + low + i] = block[i];
        };
        std::vector<B> from(begin.rows());
        for (std::int64_t chain = 0; chain < begin.rows(); ++chain)
            for (std::int64_t i = 0; i < WIDTH; ++i) {
                const Row row = begin.row(chain);
                from[chain].set(i, row.at[row.wide ? std::min(low + i, out.samples() - 1) : 0]);
            }
        small_ = true;
        B work = make_weights(sample, low);
        if (largest(most_) > EXACT) {
            small_ = false;
            work = make_weights(sample, low);
        }
        put(out.work, 0, work);
        for (std::int64_t row = 0; row < out.done.rows(); row += steps) {
            latest_.assign(steps, B::filled(NEVER));
            solve(from);
            for (std::int64_t step = 0; step < steps; ++step) {
                if (step > 0) raise(latest_[step], latest_[step - 1]);
                B complete = times_[l_.t.ends[step]];
                raise(complete, latest_[step]);
                put(out.done, row + step, complete);
            }
            for (std::int64_t chain = 0; chain < l_.t.last.rows(); ++chain)
                if (l_.t.last[chain] >= 0) from[chain] = times_[l_.t.last[chain]];
            for (std::int64_t i = 0; i < l_.t.closing.rows(); ++i)
                from[l_.t.thread[l_.t.closing[i]]] = from[l_.t.thread[l_.t.closing[i]]] + closing_[i];
        }
        for (std::int64_t chain = 0; chain < begin.rows(); ++chain) put(out.ends, chain, from[chain]);
        for (std::int64_t k = 0; k < picks; ++k) put(out.picked, k, times_[l_.t.picks[k]]);
        std::int64_t last = -1;
        for (std::int64_t k = 0; k < picks; ++k) last = std::max(last, l_.t.picks[k]);
        for (std::int64_t i = 0; i < l_.t.finals.rows(); ++i) last = std::max(last, l_.t.finals[i]);
        for (std::int64_t j = 0; j < picks; ++j) {
            const std::int64_t since = l_.t.picks[j];
            since_paths(since, last);
            const auto path = [&](std::int64_t place) { return place < since || !reached_[place] ? B::filled(NEVER) : times_[place]; };
            B end = B::filled(NEVER);
            for (std::int64_t i = 0; i < l_.t.finals.rows(); ++i) raise(end, path(l_.t.finals[i]));
            for (std::int64_t k = 0; k < picks; ++k) put(out.after, k * picks + j, path(l_.t.picks[k]));
            put(out.after, picks * picks + j, end);
        }
    }

  private:
    // Sums too large to be rounded like this show in the largest one; then all are rounded anew, with a look at each.
    B rounded(const B& sum) {
        raise(most_, sum);
        raise(most_, B::filled(0) - sum);
        if (small_) return (sum + B::filled(COARSE)) - B::filled(COARSE);
        B out;
        for (std::int64_t i = 0; i < WIDTH; ++i) out.set(i, hpuprof::rounded(sum[i]));
        return out;
    }

    // Host work without the profiler's cost, as in l_.hostwork.cpp.
    B corrected(double whole, const double* counts, const std::vector<B>& costs, const B& factor) const {
        B out = B::filled(whole);
        for (std::size_t kind = 0; kind < costs.size(); ++kind)
            if (counts[kind] != 0) out = out - B::filled(counts[kind]) * costs[kind];
        raise(out, B::filled(l_.floor * whole));
        return out * factor;
    }

    // What samples change of weights: of calls, of rows' steps and launches, of waits. Return the main path's work.
    B make_weights(const Sample& sample, std::int64_t low) {
        drawn_ = Sample::some<B>(sample.drawn, low);
        scale_ = Sample::some<B>(sample.scale, low);
        most_ = B::filled(0);
        const B work = make_calls(sample, low);
        B* out = blocks_.get() + l_.slot.size();
        for (const std::int64_t row : l_.wide_rows) {
            const B last = lasting(row);
            const double recorded[] = {l_.rows.gap[row], l_.host ? l_.rows.latency[row] : 0.0};
            for (const std::int64_t k : {0, 1})
                *out++ = !l_.rows.captured[row] || (k == 1 && !l_.host)
                             ? rounded(B::filled(recorded[k]) + last)
                             : rounded((drawn_[k] + B::filled(l_.rows.copies[row]) * drawn_[2]) + last);
        }
        for (const std::int64_t wait : l_.wide_waits) {
            const std::int64_t behind = l_.t.behind[wait];
            *out++ = rounded(B::filled(l_.tail[wait]) + (behind >= 0 ? kept_[l_.slot[behind]] : lasting(l_.t.waiting[wait])));
        }
        for (std::int64_t i = 0; i < l_.t.closing.rows(); ++i) closing_[i] = l_.host ? rounded(cost_[l_.t.closing[i]]) : B::filled(0);
        return work;
    }

    B make_calls(const Sample& sample, std::int64_t low) {
        const auto per_row = Sample::some<B>(sample.per_row, low), factor = Sample::some<B>(sample.factor, low);
        const auto graphs = Sample::some<B>(sample.graph_costs, low);
        const auto kinds = static_cast<std::int64_t>(per_row.size()), launches = static_cast<std::int64_t>(graphs.size());
        const auto count = static_cast<std::int64_t>(l_.slot.size());
        std::vector<std::int64_t> early;  // calls that follow one with a higher number
        B segments = B::filled(0), costs = B::filled(0);
        for (std::int64_t call = 0; call < count; ++call) {
            const std::int64_t main = l_.calls.main[call], previous = l_.t.previous[call];
            B segment = corrected(l_.calls.segment[call], l_.calls.segment_rows.begin() + call * kinds, per_row, factor[main]);
            const B cost = corrected(l_.calls.cost[call], l_.calls.cost_rows.begin() + call * kinds, per_row, factor[main]);
            if (main != 0) segments = segments + segment, costs = costs + cost;
            const double* counts = l_.calls.graph_costs.begin() + call * launches;
            for (std::int64_t kind = 0; l_.launching[call] && kind < launches; ++kind)
                if (counts[kind] != 0) segment = segment + B::filled(counts[kind]) * graphs[kind];
            cost_[call] = cost;
            if (l_.slot[call] >= 0) kept_[l_.slot[call]] = segment;
            if (previous > call) early.push_back(call);
            blocks_[call] = previous > call ? segment : rounded(previous < 0 ? segment : cost_[previous] + segment);
        }
        for (const std::int64_t call : early) blocks_[call] = rounded(cost_[l_.t.previous[call]] + blocks_[call]);
        return segments + costs;
    }

    // How long a row lasts: in a graph that is the sample's.
    B lasting(std::int64_t row) const {
        return l_.rows.length[row] < 0 ? B::filled(l_.rows.dur[row]) : B::filled(l_.rows.dur[row]) * scale_[l_.rows.length[row]];
    }

    B behind(const B& time, const Weight& weight) const {
        return time + (weight.block < 0 ? B::filled(weight.fixed) : blocks_[weight.block]);
    }

    // When each event happens.
    void solve(const std::vector<B>& from) {
        std::int32_t edge = 0;
        for (std::size_t place = 0; place < l_.events.size(); ++place) {
            const Event& event = l_.events[place];
            B latest = B::filled(NEVER);
            if (event.behind != -1)
                latest = behind(event.behind >= 0 ? times_[event.behind] : from[~event.behind - 1], event.step);
            for (; edge < event.edges; ++edge) raise(latest, behind(times_[l_.edges[edge].source], l_.edges[edge].delay));
            times_[place] = latest;
            if (event.of >= 0) raise(latest_[event.of], latest);
        }
    }

    // How long after one event those happen that wait for it, up to the place `last`.
    void since_paths(std::int64_t since, std::int64_t last) {
        times_[since] = B::filled(0);
        reached_[since] = 1;
        auto edge = static_cast<std::int32_t>(l_.t.first.begin()[since + 1]);
        for (std::int64_t place = since + 1; place <= last; ++place) {
            const Event& event = l_.events[place];
            bool reached = event.behind >= since && reached_[event.behind];
            B latest = reached ? behind(times_[event.behind], event.step) : B::filled(NEVER);
            for (; edge < event.edges; ++edge) {
                const Edge& come = l_.edges[edge];
                if (come.source < since || !reached_[come.source]) continue;
                raise(latest, behind(times_[come.source], come.delay));
                reached = true;
            }
            reached_[place] = reached;
            if (reached) times_[place] = latest;
        }
    }

    const Layout& l_;
    std::unique_ptr<B[]> blocks_, kept_, cost_, times_;
    std::vector<B> closing_, latest_, drawn_, scale_;
    std::vector<char> reached_;  // by place: whether it waits for the event that paths begin at
    B most_;
    bool small_ = true;
};

// Play all samples from `low` on of which there are enough; return the first one that is left.
template <std::int64_t WIDTH, class Vector>
std::int64_t play_some(const Layout& layout, const Sample& sample, std::int64_t low, std::int64_t least, const Weights& begin,
                       const Results& out) {
    if (out.samples() - low < least) return low;
    Player<WIDTH, Vector> player(layout);
    for (; out.samples() - low >= least; low += WIDTH) player.play(sample, low, begin, out);
    return low;
}

template <class Vector>
void play_samples(const Layout& layout, const Sample& sample, const Weights& begin, const Results& out) {
    play_some<FEW, Vector>(layout, sample, play_some<MANY, Vector>(layout, sample, 0, FEW + 1, begin, out), 1, begin, out);
}

#if defined(__x86_64__) && defined(__GNUC__)
// The same in wider vectors, where the machine has them. All that it calls is compiled into it, for them.
__attribute__((target("avx2"), flatten)) void play_wide(const Layout& layout, const Sample& sample, const Weights& begin,
                                                        const Results& out) {
    play_samples<Wide>(layout, sample, begin, out);
}

bool wide() {
    static const bool found = __builtin_cpu_supports("avx2");
    return found;
}
#else
constexpr auto play_wide = play_samples<Narrow>;
constexpr bool wide() { return false; }
#endif

void play_all(PyObject* const (&a)[41], double floor, bool host) {
    const Results out(a);
    const Calls calls(a + 5);
    const Sample sample(a + 19);
    const Rows rows(a + 11, sample.scale.rows());
    const Column tail(a[17], "tail", -1);
    const Weights begin(a[18], "begin", -1, out.samples());
    const Topology topology(a + 24, calls.segment.rows(), rows.dur.rows(), begin.rows(), Integers(a[36], "ends", 1).rows());
    const std::int64_t steps = topology.ends.rows(), picks = topology.picks.rows();
    if (sample.per_row.columns() != out.samples() || out.work.rows() != 1 || steps == 0 || out.done.rows() % steps != 0 ||
        out.ends.rows() != begin.rows() || out.picked.rows() != picks || out.after.rows() != (picks + 1) * picks ||
        tail.rows() != topology.waits.rows() || calls.segment_rows.columns() != sample.per_row.rows() ||
        calls.cost_rows.columns() != sample.per_row.rows() || calls.graph_costs.columns() != sample.graph_costs.rows())
        throw std::invalid_argument("what is played has the wrong shape");
    const Layout layout(calls, rows, tail, topology, floor, host);
    const Released others;
    (wide() ? play_wide : play_samples<Narrow>)(layout, sample, begin, out);
}

// Objects of nested tuples, one after the other.
void flatten(PyObject* tuple, PyObject** a, std::int64_t count) {
    std::int64_t found = 0;
    for (Py_ssize_t group = 0; group < PyTuple_Size(tuple); ++group) {
        PyObject* items = PyTuple_GetItem(tuple, group);
        if (!PyTuple_Check(items)) throw std::invalid_argument("play_steps takes tuples of arrays");
        for (Py_ssize_t i = 0; i < PyTuple_Size(items) && found < count; ++i) a[found++] = PyTuple_GetItem(items, i);
    }
    if (found != count) throw std::invalid_argument("play_steps takes " + std::to_string(count) + " arrays");
}

}  // namespace

PyObject* play_steps(PyObject*, PyObject* arguments) {
    PyObject* groups;
    double floor;
    int host;
    if (!PyArg_ParseTuple(arguments, "O!dp:play_steps", &PyTuple_Type, &groups, &floor, &host)) return nullptr;
    return guarded([&]() -> PyObject* {
        PyObject* a[41];
        flatten(groups, a, 41);
        play_all(a, floor, host != 0);
        Py_RETURN_NONE;
    });
}

}  // namespace hpuprof
