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
constexpr std::int64_t WIDTH = 8;  // samples at a time: one line of the cache

using Integers = Array<std::int64_t>;
using Table = Array<double>;
// One number for each of them, in vectors that every machine has: by themselves compilers (GCC 12) take them one by one.
struct Block {
    using Pair = double __attribute__((vector_size(16)));
    static constexpr std::int64_t PAIRS = WIDTH / 2;

    Pair pairs[PAIRS];

    double operator[](std::int64_t i) const { return pairs[i / 2][i % 2]; }
    void set(std::int64_t i, double value) { pairs[i / 2][i % 2] = value; }
};

inline Block filled(double value) {
    Block out;
    for (Block::Pair& pair : out.pairs) pair = Block::Pair{value, value};
    return out;
}

template <class Operate>
inline Block each(const Block& a, const Block& b, Operate operate) {
    Block out;
    for (std::int64_t i = 0; i < Block::PAIRS; ++i) out.pairs[i] = operate(a.pairs[i], b.pairs[i]);
    return out;
}

inline Block operator+(const Block& a, const Block& b) {
    return each(a, b, [](Block::Pair x, Block::Pair y) { return x + y; });
}
inline Block operator-(const Block& a, const Block& b) {
    return each(a, b, [](Block::Pair x, Block::Pair y) { return x - y; });
}
inline Block operator*(const Block& a, const Block& b) {
    return each(a, b, [](Block::Pair x, Block::Pair y) { return x * y; });
}

// Unlike raise_to, one instruction: weights are numbers.
inline void raise(Block& latest, const Block& come) {
    latest = each(latest, come, [](Block::Pair x, Block::Pair y) { return y > x ? y : x; });
}

double largest(const Column& column) {
    double most = 0;
    for (std::int64_t i = 0; i < column.rows(); ++i) most = std::max(most, std::fabs(column[i]));
    return most;
}

double largest(const Block& block) {
    double most = 0;
    for (std::int64_t i = 0; i < WIDTH; ++i) most = std::max(most, std::fabs(block[i]));
    return most;
}

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
    static std::vector<Block> some(const Table& table, std::int64_t low) {
        std::vector<Block> out(table.rows());
        for (std::int64_t row = 0; row < table.rows(); ++row)
            for (std::int64_t i = 0; i < WIDTH; ++i)
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

class Player {
  public:
    Player(const Calls& calls, const Rows& rows, const Column& tail, const Topology& topology, double floor, bool host)
        : calls_(calls), rows_(rows), tail_(tail), t_(topology), floor_(floor), host_(host), what_(topology.before.rows()),
          edge_(topology.source.rows()), fixed_(2 * rows.dur.rows()), segment_(new Block[calls.segment.rows()]()),
          cost_(new Block[calls.segment.rows()]()), of_calls_(new Block[calls.segment.rows()]),
          of_rows_(new Block[2 * rows.dur.rows()]), times_(new Block[topology.before.rows()]), longest_(largest(rows.dur)),
          ahead_(std::max(largest(rows.gap), largest(rows.latency)) + largest(tail)), copies_(largest(rows.copies)) {
        for (std::int64_t i = 0; i < t_.calls.rows(); ++i) what_[t_.calls[i]] = i;
        for (std::int64_t i = 0; i < t_.rows.rows(); ++i) {
            what_[t_.rows[i]] = ~i;
            edge_[t_.launches[i]] = i;
            const double ahead[] = {rows.gap[i], host ? rows.latency[i] : 0.0};
            if (!wide(i)) round_into(&fixed_[2 * i], 2, [&](std::int64_t k) { return ahead[k] + rows.dur[i]; });
        }
        for (std::int64_t i = 0; i < t_.waits.rows(); ++i) edge_[t_.waits[i]] = ~i;
    }

    // Play the samples from `low` on.
    void play(const Sample& sample, std::int64_t low, const Weights& begin, const Results& out) {
        drawn_ = Sample::some(sample.drawn, low);
        scale_ = Sample::some(sample.scale, low);
        const std::int64_t steps = t_.ends.rows(), some = std::min(WIDTH, out.samples() - low), picks = t_.picks.rows();
        const auto put = [&](const Table& into, std::int64_t row, const Block& block) {
            for (std::int64_t i = 0; i < some; ++i) into.begin()[row * into.columns() + low + i] = block[i];
        };
        std::vector<Block> from(begin.rows()), latest(steps);
        for (std::int64_t chain = 0; chain < begin.rows(); ++chain)
            for (std::int64_t i = 0; i < WIDTH; ++i) {
                const Row row = begin.row(chain);
                from[chain].set(i, row.at[row.wide ? std::min(low + i, out.samples() - 1) : 0]);
            }
        put(out.work, 0, make_work(sample, low));
        small_ = sure();
        make_weights();
        for (std::int64_t row = 0; row < out.done.rows(); row += steps) {
            solve(from);
            std::fill(latest.begin(), latest.end(), filled(NEVER));
            for (std::int64_t i = 0; i < t_.rows.rows(); ++i) raise(latest[t_.row_step[i]], times_[t_.rows[i]]);
            for (std::int64_t step = 0; step < steps; ++step) {
                if (step > 0) raise(latest[step], latest[step - 1]);
                Block complete = times_[t_.ends[step]];
                raise(complete, latest[step]);
                put(out.done, row + step, complete);
            }
            for (std::int64_t chain = 0; chain < t_.last.rows(); ++chain)
                if (t_.last[chain] >= 0) from[chain] = times_[t_.last[chain]];
            for (std::int64_t i = 0; i < t_.closing.rows(); ++i)
                from[t_.thread[t_.closing[i]]] = from[t_.thread[t_.closing[i]]] + rounded(cost_[t_.closing[i]]);
        }
        for (std::int64_t chain = 0; chain < begin.rows(); ++chain) put(out.ends, chain, from[chain]);
        for (std::int64_t k = 0; k < picks; ++k) put(out.picked, k, times_[t_.picks[k]]);
        for (std::int64_t j = 0; j < picks; ++j) {
            const std::int64_t since = t_.picks[j];
            times_[since] = filled(0);
            solve(from, since);
            const auto path = [&](std::int64_t place) { return place < since ? filled(NEVER) : times_[place]; };
            Block end = filled(NEVER);
            for (std::int64_t i = 0; i < t_.finals.rows(); ++i) raise(end, path(t_.finals[i]));
            for (std::int64_t k = 0; k < picks; ++k) put(out.after, k * picks + j, path(t_.picks[k]));
            put(out.after, picks * picks + j, end);
        }
    }

  private:
    bool wide(std::int64_t row) const { return rows_.captured[row] != 0 || rows_.length[row] >= 0; }

    // Whether no sum of weights is too large to be rounded without a look at each.
    bool sure() const {
        double scale = 1, drawn = 0;
        for (const Block& block : scale_) scale = std::max(scale, largest(block));
        for (const Block& block : drawn_) drawn += largest(block);
        return 2 * host_most_ + longest_ * scale + ahead_ + (1 + copies_) * drawn <= EXACT;
    }

    Block rounded(const Block& sum) const {
        if (small_) return (sum + filled(COARSE)) - filled(COARSE);
        Block out;
        for (std::int64_t i = 0; i < WIDTH; ++i) {
            double one;
            round_into(&one, 1, [&](std::int64_t) { return sum[i]; });
            out.set(i, one);
        }
        return out;
    }

    // Host work without the profiler's cost, as in host_work.cpp.
    Block corrected(double whole, const double* counts, const std::vector<Block>& costs, const Block& factor) const {
        Block out = filled(whole);
        for (std::size_t kind = 0; kind < costs.size(); ++kind)
            if (counts[kind] != 0) out = out - filled(counts[kind]) * costs[kind];
        raise(out, filled(floor_ * whole));
        return out * factor;
    }

    // Return the main path's segments and calls.
    Block make_work(const Sample& sample, std::int64_t low) {
        const auto per_row = Sample::some(sample.per_row, low), factor = Sample::some(sample.factor, low);
        const auto graphs = Sample::some(sample.graph_costs, low);
        const auto kinds = static_cast<std::int64_t>(per_row.size()), launches = static_cast<std::int64_t>(graphs.size());
        Block segments = filled(0), costs = filled(0), most = filled(0);
        for (std::int64_t call = 0; host_ && call < calls_.segment.rows(); ++call) {
            const std::int64_t main = calls_.main[call];
            Block segment = corrected(calls_.segment[call], calls_.segment_rows.begin() + call * kinds, per_row, factor[main]);
            const Block cost = corrected(calls_.cost[call], calls_.cost_rows.begin() + call * kinds, per_row, factor[main]);
            if (main != 0) segments = segments + segment, costs = costs + cost;
            const double* counts = calls_.graph_costs.begin() + call * launches;
            for (std::int64_t kind = 0; kind < launches; ++kind)
                if (counts[kind] != 0) segment = segment + filled(counts[kind]) * graphs[kind];
            for (const Block& work_of : {segment, cost}) raise(most, work_of), raise(most, filled(0) - work_of);
            segment_[call] = segment;
            cost_[call] = cost;
        }
        host_most_ = largest(most);
        return segments + costs;
    }

    // What samples change of weights: of a call, of a row's step and launch.
    void make_weights() {
        for (std::int64_t call = 0; call < t_.calls.rows(); ++call)
            of_calls_[call] = rounded(t_.previous[call] < 0 ? segment_[call] : cost_[t_.previous[call]] + segment_[call]);
        for (std::int64_t row = 0; row < t_.rows.rows(); ++row) {
            if (!wide(row)) continue;
            const Block last = lasting(row);
            const double recorded[] = {rows_.gap[row], host_ ? rows_.latency[row] : 0.0};
            for (const std::int64_t k : {0, 1})
                of_rows_[2 * row + k] = !rows_.captured[row] || (k == 1 && !host_)
                                            ? rounded(filled(recorded[k]) + last)
                                            : rounded((drawn_[k] + filled(rows_.copies[row]) * drawn_[2]) + last);
        }
    }

    // How long a row lasts: in a graph that is the sample's.
    Block lasting(std::int64_t row) const {
        return rows_.length[row] < 0 ? filled(rows_.dur[row]) : filled(rows_.dur[row]) * scale_[rows_.length[row]];
    }

    // When each event happens, or how long after one of them, if everything waits for that one alone.
    void solve(const std::vector<Block>& from, std::int64_t since = -1) {
        const std::int64_t *before = t_.before.begin(), *first = t_.first.begin(), *source = t_.source.begin();
        for (std::int64_t place = since + 1; place < t_.before.rows(); ++place) {
            Block latest = filled(NEVER);
            const std::int64_t behind = before[place], what = what_[place];
            if (since < 0 ? behind != -1 : behind >= since) {
                const Block& last = behind >= 0 ? times_[behind] : from[~behind - 1];
                if (what < 0 && !wide(~what))
                    latest = last + filled(fixed_[2 * ~what]);
                else
                    latest = last + (what < 0 ? of_rows_[2 * ~what] : of_calls_[what]);
            }
            for (std::int64_t edge = first[place]; edge < first[place + 1]; ++edge) {
                if (source[edge] < since) continue;
                const Block& there = times_[source[edge]];
                const std::int64_t which = edge_[edge];
                if (which < 0)
                    raise(latest, there + of_wait(~which));
                else if (wide(which))
                    raise(latest, there + of_rows_[2 * which + 1]);
                else
                    raise(latest, there + filled(fixed_[2 * which + 1]));
            }
            times_[place] = latest;
        }
    }

    Block of_wait(std::int64_t wait) const {
        const bool of_call = t_.behind[wait] >= 0;
        if (of_call && !host_) return filled(NEVER);
        return rounded(filled(tail_[wait]) + (of_call ? segment_[t_.behind[wait]] : lasting(t_.waiting[wait])));
    }

    const Calls& calls_;
    const Rows& rows_;
    const Column& tail_;
    const Topology& t_;
    const double floor_;
    const bool host_;
    std::vector<std::int64_t> what_, edge_;  // by place: a call, ~ a row; by edge: a row's launch, ~ a wait
    std::vector<double> fixed_;              // step and launch of each row that no sample changes
    std::unique_ptr<Block[]> segment_, cost_, of_calls_, of_rows_, times_;
    std::vector<Block> drawn_, scale_;
    const double longest_, ahead_, copies_;  // the largest row, what comes before one, and the most copies
    double host_most_ = 0;
    bool small_ = false;
};

// Lets other threads run Python as long as it lives.
class Released {
  public:
    Released() : state_(PyEval_SaveThread()) {}
    ~Released() { PyEval_RestoreThread(state_); }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;

  private:
    PyThreadState* state_;
};

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
    Player player(calls, rows, tail, topology, floor, host);
    const Released others;
    for (std::int64_t low = 0; low < out.samples(); low += WIDTH) player.play(sample, low, begin, out);
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
