// Arrays that Python passes, read through the buffer protocol: what they are is checked here, once, so that loops need no
// checks. Only calls that the limited API of Python 3.11 has.
#pragma once

#include <Python.h>

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace hpuprof {

// An exception of Python's that is already set.
struct PythonError {};

// Returns what a call returns to Python; what it throws becomes Python's MemoryError or ValueError.
template <class Call>
PyObject* guarded(const Call& call) {
    try {
        return call();
    } catch (const PythonError&) {
        return nullptr;
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

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

// How numpy names a type, and what the buffer protocol writes for it: one letter, or two where C has two types of a size.
template <class T>
struct Type;
template <>
struct Type<std::int64_t> {
    static constexpr const char *name = "int64", *formats = "lq";
};
template <>
struct Type<std::int32_t> {
    static constexpr const char *name = "int32", *formats = "il";
};
template <>
struct Type<bool> {
    static constexpr const char *name = "bool", *formats = "?";
};
template <>
struct Type<double> {
    static constexpr const char *name = "float64", *formats = "d";
};

// A C-contiguous array with one or two dimensions, held as long as this lives.
template <class T>
class Array {
  public:
    Array(PyObject* array, const std::string& name, int dimensions, int flags = PyBUF_SIMPLE) {
        if (PyObject_GetBuffer(array, &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) != 0) throw PythonError{};
        const std::string format = view_.format == nullptr ? "B" : view_.format;
        const bool fits = format.size() == 1 && std::string(Type<T>::formats).find(format) != std::string::npos;
        if (!fits || view_.itemsize != sizeof(T) || view_.ndim != dimensions) {
            PyBuffer_Release(&view_);
            throw std::invalid_argument(name + " must be " + Type<T>::name + " with " + std::to_string(dimensions) + " dimension(s)");
        }
    }
    ~Array() { PyBuffer_Release(&view_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* begin() const { return static_cast<T*>(view_.buf); }
    std::int64_t rows() const { return view_.shape[0]; }
    std::int64_t columns() const { return view_.shape[1]; }

  private:
    Py_buffer view_;
};

}  // namespace hpuprof
