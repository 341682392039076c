// Which elements of the input contribute to a result of a convolution. Channels are contiguous.
#pragma once

struct Geometry {
  int batch, height, width, channels;       // of the input
  int out_height, out_width, out_channels;  // of the result
  int rows, cols;                           // of the filter
  int stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
};
