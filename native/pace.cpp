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

class Player {
  public:
    Player(const Calls& calls, const Rows& rows, const Column& tail, const Topology& topology, double floor, bool host)
        : calls_(calls), rows_(rows), tail_(tail), t_(topology), floor_(floor), host_(host), events_(topology.before.rows()),
          edges_(topology.source.rows()), slot_(host ? calls.segment.rows() : 0, -1), launching_(slot_.size()),
          cost_(new Block[slot_.size()]), times_(new Block[events_.size()]), closing_(topology.closing.rows()) {
        for (std::size_t place = 0; place < events_.size(); ++place) {
            events_[place].behind = static_cast<std::int32_t>(t_.before.begin()[place]);
            events_[place].edges = static_cast<std::int32_t>(t_.first.begin()[place + 1]);
        }
        for (std::size_t edge = 0; edge < edges_.size(); ++edge) edges_[edge].source = static_cast<std::int32_t>(t_.source.begin()[edge]);
        auto blocks = static_cast<std::int32_t>(slot_.size());
        for (std::int32_t call = 0; call < blocks; ++call) {
            const double* counts = calls.graph_costs.begin() + call * calls.graph_costs.columns();
            launching_[call] = std::any_of(counts, counts + calls.graph_costs.columns(), [](double count) { return count != 0; });
            events_[t_.calls[call]].step.block = call;
        }
        for (std::int64_t row = 0; row < t_.rows.rows(); ++row) {
            Event& event = events_[t_.rows[row]];
            Weight& launch = edges_[t_.launches[row]].delay;
            event.of = static_cast<std::int32_t>(t_.row_step[row]);
            if (wide(row)) {
                wide_.push_back(row);
                event.step.block = blocks++;
                launch.block = blocks++;
            } else {
                event.step.fixed = rounded(rows.gap[row] + rows.dur[row]);
                launch.fixed = rounded((host ? rows.latency[row] : 0.0) + rows.dur[row]);
            }
        }
        for (std::int64_t wait = 0; wait < t_.waits.rows(); ++wait) {
            Weight& delay = edges_[t_.waits[wait]].delay;
            const std::int64_t behind = t_.behind[wait];
            if (behind < 0 && rows_.length[t_.waiting[wait]] < 0)
                delay.fixed = rounded(tail_[wait] + rows.dur[t_.waiting[wait]]);
            else if (behind >= 0 && !host)
                delay.fixed = NEVER;
            else {
                wide_waits_.push_back(wait);
                delay.block = blocks++;
                if (behind >= 0 && slot_[behind] < 0) slot_[behind] = slots_++;
            }
        }
        blocks_.reset(new Block[blocks]);
        kept_.reset(new Block[slots_]);
    }

    // Play the samples from `low` on.
    void play(const Sample& sample, std::int64_t low, const Weights& begin, const Results& out) {
        const std::int64_t steps = t_.ends.rows(), some = std::min(WIDTH, out.samples() - low), picks = t_.picks.rows();
        const auto put = [&](const Table& into, std::int64_t row, const Block& block) {
            for (std::int64_t i = 0; i < some; ++i) into.begin()[row * into.columns() + low + i] = block[i];
        };
        std::vector<Block> from(begin.rows());
        for (std::int64_t chain = 0; chain < begin.rows(); ++chain)
            for (std::int64_t i = 0; i < WIDTH; ++i) {
                const Row row = begin.row(chain);
                from[chain].set(i, row.at[row.wide ? std::min(low + i, out.samples() - 1) : 0]);
            }
        small_ = true;
        Block work = make_weights(sample, low);
        if (largest(most_) > EXACT) {
            small_ = false;
            work = make_weights(sample, low);
        }
        put(out.work, 0, work);
        for (std::int64_t row = 0; row < out.done.rows(); row += steps) {
            latest_.assign(steps, filled(NEVER));
            solve(from);
            for (std::int64_t step = 0; step < steps; ++step) {
                if (step > 0) raise(latest_[step], latest_[step - 1]);
                Block complete = times_[t_.ends[step]];
                raise(complete, latest_[step]);
                put(out.done, row + step, complete);
            }
            for (std::int64_t chain = 0; chain < t_.last.rows(); ++chain)
                if (t_.last[chain] >= 0) from[chain] = times_[t_.last[chain]];
            for (std::int64_t i = 0; i < t_.closing.rows(); ++i)
                from[t_.thread[t_.closing[i]]] = from[t_.thread[t_.closing[i]]] + closing_[i];
        }
        for (std::int64_t chain = 0; chain < begin.rows(); ++chain) put(out.ends, chain, from[chain]);
        for (std::int64_t k = 0; k < picks; ++k) put(out.picked, k, times_[t_.picks[k]]);
        for (std::int64_t j = 0; j < picks; ++j) {
            const std::int64_t since = t_.picks[j];
            since_paths(since);
            const auto path = [&](std::int64_t place) { return place < since || !reached_[place] ? filled(NEVER) : times_[place]; };
            Block end = filled(NEVER);
            for (std::int64_t i = 0; i < t_.finals.rows(); ++i) raise(end, path(t_.finals[i]));
            for (std::int64_t k = 0; k < picks; ++k) put(out.after, k * picks + j, path(t_.picks[k]));
            put(out.after, picks * picks + j, end);
        }
    }

  private:
    bool wide(std::int64_t row) const { return rows_.captured[row] != 0 || rows_.length[row] >= 0; }

    static double rounded(double sum) {
        double out;
        round_into(&out, 1, [&](std::int64_t) { return sum; });
        return out;
    }

    // Sums too large to be rounded like this show in the largest one; then all are rounded anew, with a look at each.
    Block rounded(const Block& sum) {
        raise(most_, sum);
        raise(most_, filled(0) - sum);
        if (small_) return (sum + filled(COARSE)) - filled(COARSE);
        Block out;
        for (std::int64_t i = 0; i < WIDTH; ++i) out.set(i, rounded(sum[i]));
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

    // What samples change of weights: of calls, of rows' steps and launches, of waits. Return the main path's work.
    Block make_weights(const Sample& sample, std::int64_t low) {
        drawn_ = Sample::some(sample.drawn, low);
        scale_ = Sample::some(sample.scale, low);
        most_ = filled(0);
        const Block work = make_calls(sample, low);
        Block* out = blocks_.get() + slot_.size();
        for (const std::int64_t row : wide_) {
            const Block last = lasting(row);
            const double recorded[] = {rows_.gap[row], host_ ? rows_.latency[row] : 0.0};
            for (const std::int64_t k : {0, 1})
                *out++ = !rows_.captured[row] || (k == 1 && !host_)
                             ? rounded(filled(recorded[k]) + last)
                             : rounded((drawn_[k] + filled(rows_.copies[row]) * drawn_[2]) + last);
        }
        for (const std::int64_t wait : wide_waits_) {
            const std::int64_t behind = t_.behind[wait];
            *out++ = rounded(filled(tail_[wait]) + (behind >= 0 ? kept_[slot_[behind]] : lasting(t_.waiting[wait])));
        }
        for (std::int64_t i = 0; i < t_.closing.rows(); ++i) closing_[i] = host_ ? rounded(cost_[t_.closing[i]]) : filled(0);
        return work;
    }

    Block make_calls(const Sample& sample, std::int64_t low) {
        const auto per_row = Sample::some(sample.per_row, low), factor = Sample::some(sample.factor, low);
        const auto graphs = Sample::some(sample.graph_costs, low);
        const auto kinds = static_cast<std::int64_t>(per_row.size()), launches = static_cast<std::int64_t>(graphs.size());
        const auto count = static_cast<std::int64_t>(slot_.size());
        std::vector<std::int64_t> early;  // calls that follow one with a higher number
        Block segments = filled(0), costs = filled(0);
        for (std::int64_t call = 0; call < count; ++call) {
            const std::int64_t main = calls_.main[call], previous = t_.previous[call];
            Block segment = corrected(calls_.segment[call], calls_.segment_rows.begin() + call * kinds, per_row, factor[main]);
            const Block cost = corrected(calls_.cost[call], calls_.cost_rows.begin() + call * kinds, per_row, factor[main]);
            if (main != 0) segments = segments + segment, costs = costs + cost;
            const double* counts = calls_.graph_costs.begin() + call * launches;
            for (std::int64_t kind = 0; launching_[call] && kind < launches; ++kind)
                if (counts[kind] != 0) segment = segment + filled(counts[kind]) * graphs[kind];
            cost_[call] = cost;
            if (slot_[call] >= 0) kept_[slot_[call]] = segment;
            if (previous > call) early.push_back(call);
            blocks_[call] = previous > call ? segment : rounded(previous < 0 ? segment : cost_[previous] + segment);
        }
        for (const std::int64_t call : early) blocks_[call] = rounded(cost_[t_.previous[call]] + blocks_[call]);
        return segments + costs;
    }

    // How long a row lasts: in a graph that is the sample's.
    Block lasting(std::int64_t row) const {
        return rows_.length[row] < 0 ? filled(rows_.dur[row]) : filled(rows_.dur[row]) * scale_[rows_.length[row]];
    }

    Block behind(const Block& time, const Weight& weight) const {
        return time + (weight.block < 0 ? filled(weight.fixed) : blocks_[weight.block]);
    }

    // When each event happens.
    void solve(const std::vector<Block>& from) {
        std::int32_t edge = 0;
        for (std::size_t place = 0; place < events_.size(); ++place) {
            const Event& event = events_[place];
            Block latest = filled(NEVER);
            if (event.behind != -1)
                latest = behind(event.behind >= 0 ? times_[event.behind] : from[~event.behind - 1], event.step);
            for (; edge < event.edges; ++edge) raise(latest, behind(times_[edges_[edge].source], edges_[edge].delay));
            times_[place] = latest;
            if (event.of >= 0) raise(latest_[event.of], latest);
        }
    }

    // How long after one event those happen that wait for it.
    void since_paths(std::int64_t since) {
        reached_.resize(events_.size());
        times_[since] = filled(0);
        reached_[since] = 1;
        auto edge = static_cast<std::int32_t>(t_.first.begin()[since + 1]);
        for (std::size_t place = since + 1; place < events_.size(); ++place) {
            const Event& event = events_[place];
            bool reached = event.behind >= since && reached_[event.behind];
            Block latest = reached ? behind(times_[event.behind], event.step) : filled(NEVER);
            for (; edge < event.edges; ++edge) {
                const Edge& come = edges_[edge];
                if (come.source < since || !reached_[come.source]) continue;
                raise(latest, behind(times_[come.source], come.delay));
                reached = true;
            }
            reached_[place] = reached;
            if (reached) times_[place] = latest;
        }
    }

    const Calls& calls_;
    const Rows& rows_;
    const Column& tail_;
    const Topology& t_;
    const double floor_;
    const bool host_;
    std::vector<Event> events_;
    std::vector<Edge> edges_;
    std::vector<std::int32_t> slot_;  // by call: where its segment is kept, -1: nowhere; none without the host
    std::vector<char> launching_;     // by call: whether it launches graphs
    std::vector<char> reached_;       // by place: whether it waits for the event that paths begin at
    std::vector<std::int64_t> wide_, wide_waits_;
    std::unique_ptr<Block[]> blocks_, kept_, cost_, times_;  // blocks: of calls, then of rows and waits that samples change
    std::vector<Block> closing_, latest_, drawn_, scale_;
    Block most_;
    std::int32_t slots_ = 0;
    bool small_ = true;
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
