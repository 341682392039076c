// The tensors of a cat: where the columns of each begin in the result.
#pragma once
#include "../permute_copy/places.cuh"

namespace kw {

constexpr int kSources = 8;

// Of a tensor that a call does not have, `begin` is where the columns of the result end.
struct Columns {
  long long begin[kSources + 1], stride[kSources];
};

// Their addresses, by value: a kernel takes each as an argument of its own.
struct Sources {
  const void *at[kSources];
};

// The tensor that holds a column, where its columns end, and element `column` of a row in it.
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
