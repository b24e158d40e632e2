// The module hpuprof._native: the loops that numpy cannot take over whole. hpuprof/native.py says when it is used.
#include <Python.h>

namespace hpuprof {
PyObject* longest_paths(PyObject*, PyObject*);
}

namespace {

PyMethodDef methods[] = {
    {"longest_paths", hpuprof::longest_paths, METH_VARARGS,
     "longest_paths(times, (before, first, source), (step, delay, begin, given or None)): fill times. Raises ValueError."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef_Slot slots[] = {{0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "hpuprof._native", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&definition); }
