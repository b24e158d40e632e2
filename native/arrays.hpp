// Arrays that Python passes, read through the buffer protocol: what they are is checked here, once, so that loops need no
// checks. Only calls that the limited API of Python 3.11 has.
#pragma once

#include <Python.h>

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

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

// A C-contiguous array of int64 or float64 with one or two dimensions, held as long as this lives.
template <class T>
class Array {
    static_assert(std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>);

  public:
    Array(PyObject* array, const std::string& name, int dimensions, int flags = PyBUF_SIMPLE) {
        if (PyObject_GetBuffer(array, &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) != 0) throw PythonError{};
        const std::string format = view_.format == nullptr ? "B" : view_.format;
        const bool fits = std::is_same_v<T, double> ? format == "d" : format == "l" || format == "q";
        if (!fits || view_.itemsize != sizeof(T) || view_.ndim != dimensions) {
            PyBuffer_Release(&view_);
            const char* type = std::is_same_v<T, double> ? "float64" : "int64";
            throw std::invalid_argument(name + " must be " + type + " with " + std::to_string(dimensions) + " dimension(s)");
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
