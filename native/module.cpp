// The module hpuprof._native: the loops that numpy cannot take over whole. hpuprof/native.py says when it is used.
#include <Python.h>

namespace hpuprof {
PyObject* end_paths(PyObject*, PyObject*);
PyObject* host_work(PyObject*, PyObject*);
PyObject* latest_of_groups(PyObject*, PyObject*);
PyObject* longest_paths(PyObject*, PyObject*);
PyObject* new_scanner(PyObject*, PyObject*);
PyObject* play_steps(PyObject*, PyObject*);
PyObject* play_weights(PyObject*, PyObject*);
PyObject* scan_rows(PyObject*, PyObject*);
PyObject* search_sorted(PyObject*, PyObject*);
PyObject* sort_events(PyObject*, PyObject*);
PyObject* walk_back(PyObject*, PyObject*);
}  // namespace hpuprof

namespace {

PyMethodDef methods[] = {
    {"end_paths", hpuprof::end_paths, METH_VARARGS,
     "end_paths(out, (before, first, source), (step, delay), (chains, last)): fill out. Raises ValueError."},
    {"host_work", hpuprof::host_work, METH_VARARGS,
     "host_work(left, (work, rows, per_row, factor), floor): fill left. Raises ValueError."},
    {"latest_of_groups", hpuprof::latest_of_groups, METH_VARARGS,
     "latest_of_groups(latest, times, (places, groups)): raise latest. Raises ValueError."},
    {"longest_paths", hpuprof::longest_paths, METH_VARARGS,
     "longest_paths(times, (before, first, source), (step, delay, begin, given or None)): fill times. Raises ValueError."},
    {"new_scanner", hpuprof::new_scanner, METH_NOARGS, "new_scanner(): what scan_rows knows of one file."},
    {"play_steps", hpuprof::play_steps, METH_VARARGS,
     "play_steps((results, calls, rows, (tail, begin), sample, topology), floor, host): fill results. Raises ValueError."},
    {"play_weights", hpuprof::play_weights, METH_VARARGS,
     "play_weights((step, delay), (segment, cost), (dur, gap, latency, copies, tail), (graph_gap, graph_latency, copy), scale, "
     "(length, captured), (previous, calls, rows, launches, waits, behind, waiting)): fill step and delay. Raises ValueError."},
    {"scan_rows", hpuprof::scan_rows, METH_VARARGS,
     "scan_rows(scanner, text, exact): None if a row is unusual, else (slices, others, flows, ascii, sampled, new words, "
     "new tracks, new inputs). Raises RuntimeError if another thread uses the scanner."},
    {"search_sorted", hpuprof::search_sorted, METH_VARARGS,
     "search_sorted(found, values, wanted, right): fill found as numpy.searchsorted does. Raises ValueError."},
    {"sort_events", hpuprof::sort_events, METH_VARARGS,
     "sort_events(stretches, (length, line, position, source, target)): fill stretches, return how many. Raises ValueError."},
    {"walk_back", hpuprof::walk_back, METH_VARARGS,
     "walk_back(out, (before, first, source), (step, delay), times, (place, chain, sample), tie): fill out, return how many. "
     "Raises ValueError."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef_Slot slots[] = {{0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "hpuprof._native", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&definition); }
