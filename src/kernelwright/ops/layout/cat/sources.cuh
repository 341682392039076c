// The tensors of a cat: the column of the result at which each begins.
#pragma once
#include "../permute_copy/places.cuh"

namespace kw {

constexpr int kSources = 8;

// For a tensor that a call does not have, `begin` is the number of columns of the result.
struct Columns {
  long long begin[kSources + 1], stride[kSources];
};

// Their addresses, by value: a kernel takes each as a separate argument.
struct Sources {
  const void *at[kSources];
};

// The tensor that contains a column, the end of its columns, and element `column` of a row in it.
template <typename T> struct Source {
  const T *from;
  long long end;

  __device__ __forceinline__ Source(const Sources &sources, const Columns &columns, long long row,
                                    long long column) {
    const void *x = sources.at[0];
    long long begin = 0, stride = columns.stride[0];
    end = columns.begin[1];
#pragma unroll
    for (int k = 1; k < kSources; ++k) {
      if (column >= columns.begin[k] && columns.begin[k] < columns.begin[k + 1]) {
        x = sources.at[k];
        begin = columns.begin[k];
        stride = columns.stride[k];
        end = columns.begin[k + 1];
      }
    }
    from = static_cast<const T *>(x) + row * stride + (column - begin);
  }
};

}  // namespace kw
