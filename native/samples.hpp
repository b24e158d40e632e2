// Rows of samples: times and weights with one value for each sample, or one that serves for all.
#pragma once

#include <cstdint>
#include <string>

#include "arrays.hpp"

namespace hpuprof {

// The samples of one event or edge: one each, or one that serves for all.
struct Row {
    const double* at;
    bool wide;
};

// Weights, shape (rows, samples) or (rows, 1).
class Weights {
  public:
    Weights(PyObject* array, const std::string& name, std::int64_t rows, std::int64_t samples) : values_(array, name, 2) {
        if ((rows >= 0 && values_.rows() != rows) || (values_.columns() != samples && values_.columns() != 1))
            throw std::invalid_argument(name + " has the wrong shape");
    }
    std::int64_t rows() const { return values_.rows(); }
    Row row(std::int64_t i) const { return {values_.begin() + i * values_.columns(), values_.columns() > 1}; }

  private:
    Array<double> values_;
};

// What is not a number stays so, as with numpy.
template <class Value>
inline void raise_to(double* __restrict latest, std::int64_t samples, Value value) {
    for (std::int64_t i = 0; i < samples; ++i) {
        const double come = value(i);
        latest[i] = come > latest[i] || come != come ? come : latest[i];
    }
}

}  // namespace hpuprof
