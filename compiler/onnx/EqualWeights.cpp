//===- EqualWeights.cpp - weights that hold the same numbers --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/EqualWeights.h"

#include "support/MixBits.h"

#include <algorithm>
#include <cstring>
#include <exception>

using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

/// The bits of a tensor that lies in a mapped file.
class Bits {
public:
  Bits(const Model &model, const rt::OnnxTensor &tensor)
      : tensor(tensor), file(model.file->open(tensor)),
        data(file->getBytes().data() + tensor.offset), size(rt::sizeOf(tensor.type)) {}

  int64_t count() const { return int64_t(tensor.bytes / size); }
  uint64_t operator[](int64_t index) const {
    uint64_t bits = 0;
    std::memcpy(&bits, data + size_t(index) * size, size);
    return bits;
  }
  bool equals(const Bits &other) const { return std::memcmp(data, other.data, tensor.bytes) == 0; }
  /// A sum over the elements, whatever their order; nothing where all are equal.
  bool sum(uint64_t &total) const {
    bool varies = false;
    total = 0;
    for (int64_t i = 0, n = count(); i < n; ++i) {
      uint64_t bits = (*this)[i];
      varies |= bits != (*this)[0];
      total += mixBits(bits);
    }
    return varies;
  }
  /// Compared in squares, so that both are read in runs.
  bool isTransposeOf(const Bits &other) const {
    constexpr int64_t square = 64;
    int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    for (int64_t i = 0; i < rows; i += square)
      for (int64_t j = 0; j < columns; j += square)
        for (int64_t row = i; row < std::min(i + square, rows); ++row)
          for (int64_t column = j; column < std::min(j + square, columns); ++column)
            if ((*this)[row * columns + column] != other[column * rows + row])
              return false;
    return true;
  }

private:
  const rt::OnnxTensor &tensor;
  std::shared_ptr<const rt::MappedFile> file;
  const std::byte *data;
  size_t size;
};

bool fits(const rt::OnnxTensor &a, const rt::OnnxTensor &b, bool isTransposed) {
  if (a.type != b.type || a.bytes != b.bytes)
    return false;
  if (!isTransposed)
    return a.shape == b.shape;
  return a.shape.size() == 2 && b.shape.size() == 2 && a.shape[0] == b.shape[1] &&
         a.shape[1] == b.shape[0];
}

/// Sums tell which may be equal, so that each tensor is read once for all comparisons.
void find(const Model &model, std::vector<EqualWeights> &pairs) {
  std::vector<const rt::OnnxTensor *> candidates;
  for (const rt::OnnxTensor &tensor : model.tensors)
    if (tensor.isInitializer && tensor.inPlace && !tensor.packed && isFloat(tensor.type) &&
        tensor.bytes > rt::sizeOf(tensor.type))
      candidates.push_back(&tensor);
  std::map<uint64_t, std::vector<const rt::OnnxTensor *>> bySum;
  for (const rt::OnnxTensor *tensor : candidates) {
    bool hasFellow = std::any_of(candidates.begin(), candidates.end(), [&](auto *other) {
      return other != tensor && (fits(*tensor, *other, false) || fits(*tensor, *other, true));
    });
    uint64_t sum = 0;
    if (!hasFellow || !Bits(model, *tensor).sum(sum))
      continue;
    auto &group = bySum[sum];
    auto equal = [&](const rt::OnnxTensor *first, bool isTransposed) {
      if (!fits(*first, *tensor, isTransposed))
        return false;
      Bits a(model, *first), b(model, *tensor);
      return isTransposed ? a.isTransposeOf(b) : a.equals(b);
    };
    bool isKnown = false;
    for (size_t i = 0; i < group.size() && !isKnown; ++i)
      for (bool isTransposed : {false, true})
        if (!isKnown && equal(group[i], isTransposed)) {
          pairs.push_back({group[i]->name, tensor->name, isTransposed});
          isKnown = true;
        }
    if (!isKnown)
      group.push_back(tensor);
  }
}

} // namespace

std::string onnx_import::findEqualWeights(const Model &model, std::vector<EqualWeights> &pairs) {
  try {
    find(model, pairs);
    return "";
  } catch (const std::exception &error) {
    return error.what();
  }
}
