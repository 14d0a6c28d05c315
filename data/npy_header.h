// The header of NumPy's NPY files. Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
#pragma once

#include "data/numbers.h"
#include "data/source.h"

#include <cstdint>
#include <vector>

namespace gpipe::data {

struct NpyHeader {
  Stored type = Stored::f32;
  std::endian order = std::endian::little;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;          // of the header
  uint64_t element_count = 0;  // product of the shape; its bytes are known to be what the file has
};

/// Reads the header and checks it against the size of the file. DataError for what is no NPY file, for other types than
/// numbers of 1 to 8 bytes (objects and structures are never opened), for Fortran order, and for sizes that do not fit.
NpyHeader read_npy_header(Source& source);

}  // namespace gpipe::data
