// The module hpuprof._native: the loops that numpy cannot take over whole. hpuprof/native.py says when it is used.
#include <Python.h>

namespace hpuprof {
PyObject* combine_intervals(PyObject*, PyObject*);
PyObject* contains_instants(PyObject*, PyObject*);
PyObject* covered_before(PyObject*, PyObject*);
PyObject* end_times(PyObject*, PyObject*);
PyObject* host_work(PyObject*, PyObject*);
PyObject* in_no_other(PyObject*, PyObject*);
PyObject* innermost_rows(PyObject*, PyObject*);
PyObject* latest_of_groups(PyObject*, PyObject*);
PyObject* longest_paths(PyObject*, PyObject*);
PyObject* nest_rows(PyObject*, PyObject*);
PyObject* new_scanner(PyObject*, PyObject*);
PyObject* open_rows(PyObject*, PyObject*);
PyObject* play_steps(PyObject*, PyObject*);
PyObject* play_weights(PyObject*, PyObject*);
PyObject* row_stops(PyObject*, PyObject*);
PyObject* rows_around(PyObject*, PyObject*);
PyObject* scan_rows(PyObject*, PyObject*);
PyObject* search_sorted(PyObject*, PyObject*);
PyObject* sort_events(PyObject*, PyObject*);
PyObject* unite_intervals(PyObject*, PyObject*);
PyObject* walk_back(PyObject*, PyObject*);
}  // namespace hpuprof

namespace {

PyMethodDef methods[] = {
    {"combine_intervals", hpuprof::combine_intervals, METH_VARARGS,
     "combine_intervals(how, found, (start, end), (start, end)): fill found with what both cover (and), either (or), or only the "
     "first (without); return how many. Raises ValueError."},
    {"contains_instants", hpuprof::contains_instants, METH_VARARGS,
     "contains_instants(inside, (start, end), when): fill inside. Raises ValueError."},
    {"covered_before", hpuprof::covered_before, METH_VARARGS,
     "covered_before(covered, (start, end), lengths, when): fill covered. Raises ValueError."},
    {"end_times", hpuprof::end_times, METH_VARARGS,
     "end_times(ends, origins, (before, first, source), (step, delay), (values, chains, last)): fill ends and origins. Raises ValueError."},
    {"host_work", hpuprof::host_work, METH_VARARGS,
     "host_work(left, (work, rows, per_row, factor), floor): fill left. Raises ValueError."},
    {"in_no_other", hpuprof::in_no_other, METH_VARARGS,
     "in_no_other(outer, codes, (begin, end), codes in all): fill outer. Raises ValueError."},
    {"innermost_rows", hpuprof::innermost_rows, METH_VARARGS,
     "innermost_rows(found, (opened, row), (track, when), span): fill found. Raises ValueError."},
    {"latest_of_groups", hpuprof::latest_of_groups, METH_VARARGS,
     "latest_of_groups(latest, times, (places, groups)): raise latest. Raises ValueError."},
    {"longest_paths", hpuprof::longest_paths, METH_VARARGS,
     "longest_paths(times, (before, first, source), (step, delay, begin, given or None)): fill times. Raises ValueError."},
    {"nest_rows", hpuprof::nest_rows, METH_VARARGS,
     "nest_rows(parent, end, track, start): fill parent, clip end, return how many were clipped. Raises ValueError."},
    {"new_scanner", hpuprof::new_scanner, METH_O, "new_scanner(key): what scan_rows knows of one file. The key is 16 secret bytes. Raises ValueError."},
    {"open_rows", hpuprof::open_rows, METH_VARARGS,
     "open_rows(found, (track, start, end, parent), span): fill found with instants and rows; return how many. Raises ValueError."},
    {"play_steps", hpuprof::play_steps, METH_VARARGS,
     "play_steps((results, calls, rows, (tail, begin), sample, topology), floor, host): fill results. Raises ValueError."},
    {"play_weights", hpuprof::play_weights, METH_VARARGS,
     "play_weights((step, delay), (segment, cost), (dur, gap, latency, copies, tail), (graph_gap, graph_latency, copy), scale, "
     "(length, captured), (previous, calls, rows, launches, waits, behind, waiting)): fill step and delay. Raises ValueError."},
    {"row_stops", hpuprof::row_stops, METH_VARARGS, "row_stops(stop, parent): fill stop. Raises ValueError."},
    {"rows_around", hpuprof::rows_around, METH_VARARGS, "rows_around(count, marked, stop): fill count. Raises ValueError."},
    {"scan_rows", hpuprof::scan_rows, METH_VARARGS,
     "scan_rows(scanner, text, exact): None if a row is unusual, else (slices, others, flows, sampled, new words, "
     "new tracks, new inputs). Raises RuntimeError if another thread uses the scanner."},
    {"search_sorted", hpuprof::search_sorted, METH_VARARGS,
     "search_sorted(found, values, wanted, right): fill found as numpy.searchsorted does. Raises ValueError."},
    {"sort_events", hpuprof::sort_events, METH_VARARGS,
     "sort_events(stretches, (length, line, position, source, target)): fill stretches, return how many. Raises ValueError."},
    {"unite_intervals", hpuprof::unite_intervals, METH_VARARGS,
     "unite_intervals(found, start, end, rows or None): fill found; return how many, -1 if starts do not ascend. Raises ValueError."},
    {"walk_back", hpuprof::walk_back, METH_VARARGS,
     "walk_back(out, (before, first, source), (step, delay), times, (place, chain, sample), tie): fill out, return how many. "
     "Raises ValueError."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef_Slot slots[] = {{0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "hpuprof._native", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&definition); }
