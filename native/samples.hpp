// Rows of samples: times and weights with one value for each sample, or one that serves for all.
#pragma once

#include <cmath>
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

// Indices into an array of `below` rows; `none`: whether -1 may stand for none.
class Places {
  public:
    Places(PyObject* array, const std::string& name, std::int64_t count, std::int64_t below, bool none = false)
        : values_(array, name, 1) {
        bool right = count < 0 || values_.rows() == count;
        for (std::int64_t i = 0; right && i < rows(); ++i) right = (*this)[i] >= (none ? -1 : 0) && (*this)[i] < below;
        if (!right) throw std::invalid_argument(name + " has the wrong shape or holds no places");
    }
    std::int64_t rows() const { return values_.rows(); }
    std::int64_t operator[](std::int64_t i) const { return values_.begin()[i]; }

  private:
    Array<std::int64_t> values_;
};

// A column of numbers, one for each of `count` rows or samples.
class Column {
  public:
    Column(PyObject* array, const std::string& name, std::int64_t count) : values_(array, name, 1) {
        if (count >= 0 && values_.rows() != count) throw std::invalid_argument(name + " has the wrong shape");
    }
    std::int64_t rows() const { return values_.rows(); }
    const double* begin() const { return values_.begin(); }
    double operator[](std::int64_t i) const { return values_.begin()[i]; }

  private:
    Array<double> values_;
};

// What is wrong with a topology, if anything: each place may look back to earlier places only.
inline const char* wrong(const Array<std::int64_t>& before, const Array<std::int64_t>& first, const Array<std::int64_t>& source,
                         std::int64_t chains) {
    const std::int64_t events = before.rows(), edges = source.rows();
    if (first.rows() != events + 1) return "first must be one longer than before";
    if (first.begin()[0] != 0 || first.begin()[events] != edges) return "first must begin with 0 and end with the number of edges";
    for (std::int64_t place = 0; place < events; ++place) {
        const std::int64_t behind = before.begin()[place], low = first.begin()[place], high = first.begin()[place + 1];
        if (behind >= place) return "before must be of earlier places";
        if (behind < 0 && ~behind > chains) return "before must be of chains that begin";
        if (low > high || high > edges) return "first must not decrease";
        for (std::int64_t edge = low; edge < high; ++edge)
            if (source.begin()[edge] < 0 || source.begin()[edge] >= place) return "source must be of earlier places";
    }
    return nullptr;
}

// Sums are rounded to multiples of 2^-10. Adding 1.5 * 2^42 leaves a double no finer bits, and is exact up to 2^41.
constexpr double COARSE = 6597069766656.0, EXACT = 2199023255552.0;

template <class Value>
inline void round_into(double* __restrict out, std::int64_t samples, Value value) {
    std::int64_t large = 0;
    for (std::int64_t i = 0; i < samples; ++i) {
        const double sum = value(i);
        large += !(std::fabs(sum) <= EXACT);
        out[i] = (sum + COARSE) - COARSE;
    }
    if (large != 0)
        for (std::int64_t i = 0; i < samples; ++i) out[i] = std::nearbyint(value(i) * 1024.0) * (1.0 / 1024.0);
}

// What is not a number stays so, as with numpy.
template <class Value>
inline void raise_to(double* __restrict latest, std::int64_t samples, Value value) {
    for (std::int64_t i = 0; i < samples; ++i) {
        const double come = value(i);
        latest[i] = come > latest[i] || come != come ? come : latest[i];
    }
}

}  // namespace hpuprof
