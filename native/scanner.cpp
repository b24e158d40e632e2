// The row scanner as Python sees it: a capsule, and a function that scans one piece of a file with it.
#include <Python.h>

#include <new>

#include "row_scanner.hpp"

namespace hpuprof {
namespace {

constexpr char CAPSULE[] = "hpuprof._native.scanner";

struct Scanner {
    RowScanner rows;
    std::int64_t words = 0, tracks = 0, inputs = 0;  // texts that Python has
    bool busy = false;                               // a thread is scanning
};

void remove(PyObject* capsule) { delete static_cast<Scanner*>(PyCapsule_GetPointer(capsule, CAPSULE)); }

template <class Item>
PyObject* bytes(const std::vector<Item>& items) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(items.data()), static_cast<Py_ssize_t>(items.size() * sizeof(Item)));
}

// The texts that Python has not had yet, as a list of bytes.
PyObject* fresh(const Texts& texts, std::int64_t& had) {
    PyObject* list = PyList_New(texts.count() - had);
    if (list == nullptr) return nullptr;
    for (std::int64_t code = had; code < texts.count(); ++code) {
        const std::string_view text = texts.text(code);
        PyObject* item = PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
        if (item == nullptr) {
            Py_DECREF(list);
            return nullptr;
        }
        PyList_SET_ITEM(list, code - had, item);
    }
    had = texts.count();
    return list;
}

}  // namespace

PyObject* new_scanner(PyObject*, PyObject*) {
    try {
        auto* scanner = new Scanner;
        PyObject* capsule = PyCapsule_New(scanner, CAPSULE, remove);
        if (capsule == nullptr) delete scanner;
        return capsule;
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyObject* scan_rows(PyObject*, PyObject* arguments) {
    PyObject *capsule, *text;
    int exact;
    // Only `bytes`: they do not change meanwhile, and a 0 follows them.
    if (!PyArg_ParseTuple(arguments, "OSp:scan_rows", &capsule, &text, &exact)) return nullptr;
    auto* scanner = static_cast<Scanner*>(PyCapsule_GetPointer(capsule, CAPSULE));
    if (scanner == nullptr) return nullptr;
    if (scanner->busy) {
        PyErr_SetString(PyExc_RuntimeError, "a scanner serves one thread at a time");
        return nullptr;
    }
    RowScanner& rows = scanner->rows;
    const char* begin = PyBytes_AS_STRING(text);
    const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(text));
    bool plain = false, memory = true;
    scanner->busy = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        plain = rows.scan(begin, size, exact != 0);
    } catch (const std::bad_alloc&) {
        memory = false;
    }
    Py_END_ALLOW_THREADS;
    scanner->busy = false;
    if (!memory) return PyErr_NoMemory();
    if (!plain) Py_RETURN_NONE;
    return Py_BuildValue("NNLNNNNN", bytes(rows.slices), bytes(rows.others), static_cast<long long>(rows.flows),
                         PyBool_FromLong(rows.ascii), PyBool_FromLong(rows.sampled), fresh(rows.words, scanner->words), fresh(rows.tracks, scanner->tracks),
                         fresh(rows.inputs, scanner->inputs));
}

}  // namespace hpuprof
