//===- HostTensor.h - tensors the compiler computes with --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A dense row-major tensor in memory: what EvaluateInterface reads and returns.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_HOSTTENSOR_H
#define GRIDLOOM_DIALECTS_LOOM_HOSTTENSOR_H

#include "dialects/loom/ExactField.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <optional>
#include <vector>

namespace gridloom::loom {

/// The representation of an element in memory. `Bool` takes one byte, 0 or 1. `Exact` stands for
/// any float type in exact mode and takes eight.
enum class ElementKind {
  Bool,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F8E4M3FN,
  F8E5M2,
  F8E4M3FNUZ,
  F8E5M2FNUZ,
  F16,
  BF16,
  F32,
  F64,
  Exact
};

/// Bytes of one element.
size_t sizeOf(ElementKind kind);
bool isFloatKind(ElementKind kind);
/// The name used in messages: f32, i64, bool, exact, ...
llvm::StringRef nameOf(ElementKind kind);
/// The kind of an MLIR element type; nullopt for types that the compiler cannot compute with.
std::optional<ElementKind> getElementKind(mlir::Type type);
/// The MLIR type of a kind; null for Exact, which stands for several.
mlir::Type getElementType(ElementKind kind, mlir::MLIRContext *context);

/// Whether elements are 8-bit floats, which are only moved and converted, never computed with.
bool isFloat8(mlir::Type element);

/// A dense row-major tensor. Copies share their bytes until one of them is written.
class HostTensor {
public:
  HostTensor() = default;
  /// All elements zero.
  HostTensor(ElementKind kind, llvm::ArrayRef<int64_t> shape);

  /// The value of an attribute with any storage (splat, dense, resource). Fails without diagnostic
  /// if the element type is not an ElementKind or the attribute's values are not accessible.
  static llvm::FailureOr<HostTensor> fromAttribute(mlir::ElementsAttr attribute);
  /// Rounds or truncates `values` to `kind`. The lists have as many elements as the shape. Numbers
  /// too large for an 8-bit float become its largest number, or without `saturate` infinity or NaN.
  static HostTensor fromDoubles(ElementKind kind, llvm::ArrayRef<int64_t> shape,
                                llvm::ArrayRef<double> values, bool saturate = true);
  static HostTensor fromInts(ElementKind kind, llvm::ArrayRef<int64_t> shape,
                             llvm::ArrayRef<int64_t> values);
  static HostTensor fromExact(llvm::ArrayRef<int64_t> shape, std::vector<Exact> values);

  ElementKind getKind() const { return kind; }
  llvm::ArrayRef<int64_t> getShape() const { return shape; }
  int64_t getRank() const { return shape.size(); }
  int64_t getNumElements() const { return numElements; }
  size_t getElementSize() const { return sizeOf(kind); }
  size_t getNumBytes() const { return numElements * sizeOf(kind); }
  /// The tensor type; null for Exact.
  mlir::RankedTensorType getType(mlir::MLIRContext *context) const;

  const char *getData() const { return bytes ? bytes->data() : nullptr; }
  char *getMutableData();
  /// The elements as stored. T must have the element's size.
  template <typename T> llvm::ArrayRef<T> getValues() const {
    assert(sizeof(T) == sizeOf(kind) && "type does not match the element kind");
    return {reinterpret_cast<const T *>(getData()), static_cast<size_t>(numElements)};
  }
  template <typename T> llvm::MutableArrayRef<T> getMutableValues() {
    assert(sizeof(T) == sizeOf(kind) && "type does not match the element kind");
    return {reinterpret_cast<T *>(getMutableData()), static_cast<size_t>(numElements)};
  }

  /// The elements as doubles, also for integers. Not for Exact.
  std::vector<double> toDoubles() const;
  /// The elements as 64-bit integers; floats truncate towards zero and saturate, U64 keeps its
  /// bits. Not for Exact.
  std::vector<int64_t> toInts() const;
  /// The elements as field elements: floats as the rationals they are, integers modulo p.
  std::vector<Exact> toExact() const;
  /// Floats as Exact; other tensors unchanged.
  HostTensor toExactMode() const;

  /// A dense attribute of the tensor; a splat if all elements are equal. Not for Exact.
  mlir::DenseElementsAttr toAttribute(mlir::MLIRContext *context) const;

  /// The same elements under another shape of the same size.
  HostTensor reshaped(llvm::ArrayRef<int64_t> newShape) const;
  /// The block that starts at `starts`; its parts beyond this tensor are poison.
  HostTensor extract(llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes) const;
  /// Copies the part of `source` that fits into this tensor at `starts`.
  void insert(const HostTensor &source, llvm::ArrayRef<int64_t> starts);
  /// Makes every element poison: NaN, for integers a conspicuous number, for Bool true.
  void fillWithPoison();

  /// Equal kind, shape and bytes.
  bool isBitwiseEqual(const HostTensor &other) const;

private:
  ElementKind kind = ElementKind::F32;
  llvm::SmallVector<int64_t, 4> shape;
  int64_t numElements = 0;
  std::shared_ptr<std::vector<char>> bytes;
};

/// Row-major strides in elements.
llvm::SmallVector<int64_t> getRowMajorStrides(llvm::ArrayRef<int64_t> shape);
int64_t countElements(llvm::ArrayRef<int64_t> shape);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_HOSTTENSOR_H
