//===- hand_kernels.cu - hand-written kernels for NVIDIA GPUs -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The reference for generated kernels: bench/gpu_vs_nvcc.py compiles both and compares the machine
// code. Sizes are constants, as in generated kernels; accesses have 128 bits; a row is read once.
//
//===----------------------------------------------------------------------===//

constexpr unsigned kEveryone = 0xffffffffu;

struct Sum {
  static __device__ float combine(float a, float b) { return a + b; }
};
struct Largest {
  static __device__ float combine(float a, float b) { return fmaxf(a, b); }
};

/// Reduces the values of a warp's threads; all get the result.
template <typename Kind> __device__ float reduceWarp(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    value = Kind::combine(value, __shfl_xor_sync(kEveryone, value, mask));
  return value;
}

/// Reduces the values of a block of `kWarps` warps; all threads get the result.
template <typename Kind, int kWarps> __device__ float reduceBlock(float value, float *places) {
  value = reduceWarp<Kind>(value);
  if (threadIdx.x % 32 == 0)
    places[threadIdx.x / 32] = value;
  __syncthreads();
  value = places[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    value = Kind::combine(value, places[warp]);
  return value;
}

template <typename Kind> __device__ float reduceVector(float4 v) {
  return Kind::combine(Kind::combine(v.x, v.y), Kind::combine(v.z, v.w));
}

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

/// [512, 3072] + [3072]; a block computes a third of a row.
extern "C" __global__ void __launch_bounds__(256)
    bias_gelu(const float4 *__restrict__ x, const float4 *__restrict__ bias,
              float4 *__restrict__ y) {
  int column = blockIdx.y * 256 + threadIdx.x, place = blockIdx.x * 768 + column;
  float4 v = x[place], b = bias[column];
  y[place] = make_float4(gelu(v.x + b.x), gelu(v.y + b.y), gelu(v.z + b.z), gelu(v.w + b.w));
}

/// [512, 3072] along rows; a block computes a row.
extern "C" __global__ void __launch_bounds__(256)
    softmax_3072(const float4 *__restrict__ x, float4 *__restrict__ y) {
  __shared__ float peaks[8], sums[8];
  const float4 *row = x + blockIdx.x * 768 + threadIdx.x;
  float4 v[3];
  float peak = __int_as_float(0xff800000), sum = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    v[i] = row[i * 256];
    peak = fmaxf(peak, reduceVector<Largest>(v[i]));
  }
  peak = reduceBlock<Largest, 8>(peak, peaks);
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    v[i] = make_float4(expf(v[i].x - peak), expf(v[i].y - peak), expf(v[i].z - peak),
                       expf(v[i].w - peak));
    sum += reduceVector<Sum>(v[i]);
  }
  float factor = 1.0f / reduceBlock<Sum, 8>(sum, sums);
  float4 *out = y + blockIdx.x * 768 + threadIdx.x;
#pragma unroll
  for (int i = 0; i < 3; ++i)
    out[i * 256] = make_float4(v[i].x * factor, v[i].y * factor, v[i].z * factor, v[i].w * factor);
}

/// [12288, 128] along rows; a warp computes a row.
extern "C" __global__ void __launch_bounds__(256)
    softmax_128(const float4 *__restrict__ x, float4 *__restrict__ y) {
  int place = blockIdx.x * 256 + threadIdx.x;
  float4 v = x[place];
  float peak = reduceWarp<Largest>(reduceVector<Largest>(v));
  v = make_float4(expf(v.x - peak), expf(v.y - peak), expf(v.z - peak), expf(v.w - peak));
  float factor = 1.0f / reduceWarp<Sum>(reduceVector<Sum>(v));
  y[place] = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

/// [512, 768] + [512, 768], normalised along rows; a block computes a row.
extern "C" __global__ void __launch_bounds__(192)
    add_layernorm_768(const float4 *__restrict__ x, const float4 *__restrict__ residual,
                      const float4 *__restrict__ scale, const float4 *__restrict__ bias,
                      float4 *__restrict__ y) {
  __shared__ float sums[6], squares[6];
  int column = threadIdx.x, place = blockIdx.x * 192 + column;
  float4 v = x[place], r = residual[place];
  v = make_float4(v.x + r.x, v.y + r.y, v.z + r.z, v.w + r.w);
  float mean = reduceBlock<Sum, 6>(reduceVector<Sum>(v), sums) * (1.0f / 768);
  v = make_float4(v.x - mean, v.y - mean, v.z - mean, v.w - mean);
  float4 square = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
  float variance = reduceBlock<Sum, 6>(reduceVector<Sum>(square), squares) * (1.0f / 768);
  float factor = rsqrtf(variance + 1e-12f);
  float4 s = scale[column], b = bias[column];
  y[place] = make_float4(v.x * factor * s.x + b.x, v.y * factor * s.y + b.y,
                         v.z * factor * s.z + b.z, v.w * factor * s.w + b.w);
}

/// [512, 3072] to [3072, 512]; a block of 32 x 8 threads transposes a tile of 32 x 32.
extern "C" __global__ void __launch_bounds__(256)
    transpose(const float *__restrict__ x, float *__restrict__ y) {
  __shared__ float tile[32][33];
  int along = threadIdx.x % 32, across = threadIdx.x / 32;
  int row = blockIdx.x * 32, column = blockIdx.y * 32;
#pragma unroll
  for (int i = 0; i < 32; i += 8)
    tile[across + i][along] = x[(row + across + i) * 3072 + column + along];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 32; i += 8)
    y[(column + across + i) * 512 + row + along] = tile[along][across + i];
}

/// Rows of [30522, 768] by 1024 indices; a block copies a row. Negative indices count from the end;
/// others out of range are clamped, so that no read is out of bounds.
extern "C" __global__ void __launch_bounds__(192)
    gather_768(const float4 *__restrict__ table, const long long *__restrict__ numbers,
               float4 *__restrict__ y) {
  constexpr long long kRows = 30522;
  long long number = numbers[blockIdx.x];
  if (number < 0)
    number += kRows;
  int row = int(min(max(number, 0ll), kRows - 1));
  y[blockIdx.x * 192 + threadIdx.x] = table[row * 192 + threadIdx.x];
}
