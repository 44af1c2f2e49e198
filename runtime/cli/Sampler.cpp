//===- Sampler.cpp - choose the next token --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Sampler.h"

#include "runtime/arrays/Generator.h"
#include "runtime/core/Error.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

using namespace gridloom::rt;

/// In [0, 1), from the generator of `--input x=uniform(0,1)`.
static double drawUniform(uint64_t seed, int64_t row, int64_t step) {
  std::string name = std::to_string(row) + "," + std::to_string(step);
  return generate({Generator::Uniform, 0, 1}, name, DataType::F64, {}, seed).as<double>()[0];
}

int64_t gridloom::rt::chooseToken(std::span<const float> logits, const SamplingSettings &settings,
                                  int64_t row, int64_t step) {
  auto isNaN = [](float value) { return std::isnan(value); };
  if (std::any_of(logits.begin(), logits.end(), isNaN))
    throw Error(ErrorCode::InvalidArgument, "the logits hold NaN; see gridloom check");
  auto likeliest = std::max_element(logits.begin(), logits.end());
  if (likeliest == logits.end() || !std::isfinite(*likeliest))
    throw Error(ErrorCode::InvalidArgument, "no logit is finite; see gridloom check");
  if (settings.temperature == 0)
    return likeliest - logits.begin();
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto before = [&](int64_t a, int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (settings.topK > 0 && settings.topK < int64_t(order.size())) {
    std::partial_sort(order.begin(), order.begin() + settings.topK, order.end(), before);
    order.resize(size_t(settings.topK));
  }
  std::vector<double> sums;
  double sum = 0;
  for (int64_t token : order)
    sums.push_back(sum += std::exp((double(logits[token]) - *likeliest) / settings.temperature));
  double drawn = drawUniform(settings.seed, row, step) * sum;
  size_t index = size_t(std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin());
  return order[std::min(index, order.size() - 1)];
}
