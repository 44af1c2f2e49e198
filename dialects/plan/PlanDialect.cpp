//===- PlanDialect.cpp - attributes, types, registration ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/plan/Plan.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom::plan;

#include "dialects/plan/PlanDialect.cpp.inc"
#include "dialects/plan/PlanEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/plan/PlanTypes.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/plan/PlanAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/plan/PlanTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/plan/PlanOps.cpp.inc"
      >();
}

LogicalResult MatmulAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<int64_t> sizes, ArrayRef<int64_t> lhs,
                                 ArrayRef<int64_t> rhs, ArrayRef<int64_t> out, FloatAttr,
                                 EpilogueAttr, bool) {
  if (sizes.size() < 3)
    return emitError() << "a matmul has at least M, N and K, not " << sizes.size() << " sizes";
  for (ArrayRef<int64_t> strides : {lhs, rhs, out}) {
    if (strides.size() + 1 != sizes.size()) // P-MM1
      return emitError() << strides.size() << " strides for " << sizes.size() << " sizes; expected "
                         << sizes.size() - 1;
    if (strides.back() != 1 && strides.drop_back().back() != 1) // P-MM2
      return emitError() << "neither of the strides " << strides.drop_back().back() << " and "
                         << strides.back() << " is 1";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// stream
//===----------------------------------------------------------------------===//

StreamAttr StreamAttr::getCompute(MLIRContext *context) {
  return get(context, StreamKind::Compute, ArrayAttr(), -1);
}

StreamAttr StreamAttr::getOf(GroupKind kind, ArrayAttr axes, int64_t stage) {
  MLIRContext *context = axes.getContext();
  switch (kind) {
  case GroupKind::Send:
    return get(context, StreamKind::Send, ArrayAttr(), stage);
  case GroupKind::Recv:
    return get(context, StreamKind::Recv, ArrayAttr(), stage);
  default:
    return get(context, StreamKind::Collective, axes, -1);
  }
}

std::string StreamAttr::getName() const {
  std::string name = stringifyStreamKind(getKind()).str();
  if (getKind() == StreamKind::Collective)
    name = "comm." + llvm::join(getAxes().getAsValueRange<StringAttr>(), "+");
  return getStage() < 0 ? name : name + "." + std::to_string(getStage());
}

LogicalResult StreamAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                                 StreamKind kind, ArrayAttr axes, int64_t stage) {
  bool isTransfer = kind == StreamKind::Send || kind == StreamKind::Recv;
  bool hasAxes = axes && llvm::all_of(axes, llvm::IsaPred<StringAttr>);
  if (isTransfer != (stage >= 0) || (kind == StreamKind::Collective) != hasAxes ||
      (axes && !hasAxes)) // P-ST1
    return emitError() << "a " << stringifyStreamKind(kind)
                       << " stream has other axes or another stage than its kind needs";
  return success();
}

static int64_t multiply(ArrayRef<int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes)
    product *= size;
  return product;
}

//===----------------------------------------------------------------------===//
// convolution
//===----------------------------------------------------------------------===//

LogicalResult ConvolutionAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                                      ArrayRef<int64_t> input, ArrayRef<int64_t> inputStrides,
                                      ArrayRef<int64_t> weight, ArrayRef<int64_t> weightStrides,
                                      ArrayRef<int64_t> output, ArrayRef<int64_t> outputStrides,
                                      ArrayRef<int64_t> strides, ArrayRef<int64_t> low,
                                      ArrayRef<int64_t> high, ArrayRef<int64_t> dilations,
                                      int64_t groups, EpilogueAttr epilogue, bool) {
  size_t rank = input.size();
  for (ArrayRef<int64_t> list : {inputStrides, weight, weightStrides, output, outputStrides})
    if (rank < 3 || list.size() != rank) // P-CV1
      return emitError() << "a convolution of " << rank << " dimensions has lists of "
                         << list.size();
  for (auto [list, least] :
       {std::pair(strides, 1), std::pair(dilations, 1), std::pair(low, 0), std::pair(high, 0)})
    if (list.size() + 2 != rank ||
        llvm::any_of(list, [least = least](int64_t each) { return each < least; })) // P-CV2
      return emitError() << "a convolution of " << rank - 2 << " spatial dimensions has "
                         << list.size() << " strides, dilations or paddings, or one below "
                         << least;
  if (groups < 1 || input[1] != weight[1] * groups || output[1] != weight[0] ||
      weight[0] % groups || input[0] != output[0]) // P-CV3
    return emitError() << groups << " groups, " << input[1] << " input channels in " << input[0]
                       << " images and weights of " << weight[0] << " x " << weight[1]
                       << " do not give " << output[1] << " channels in " << output[0];
  for (size_t i = 0; i + 2 < rank; ++i) {
    int64_t room = input[i + 2] + low[i] + high[i] - (weight[i + 2] - 1) * dilations[i] - 1;
    if (room < 0 || output[i + 2] != room / strides[i] + 1)
      return emitError() << output[i + 2] << " positions of a window of " << weight[i + 2] << " in "
                         << input[i + 2] << " elements; expected "
                         << (room < 0 ? 0 : room / strides[i] + 1);
  }
  if (epilogue.getActivation() == Activation::Gelu) // P-CV4
    return emitError() << "a convolution ends with relu or no activation, not gelu";
  return success();
}

double ConvolutionAttr::getFlops() const {
  return 2.0 * multiply(getOutput()) * multiply(getWeight().drop_front());
}

//===----------------------------------------------------------------------===//
// attention
//===----------------------------------------------------------------------===//

LogicalResult AttentionAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                                    ArrayRef<int64_t> sizes, ArrayRef<int64_t> query,
                                    ArrayRef<int64_t> key, ArrayRef<int64_t> value,
                                    ArrayRef<int64_t> out, ArrayRef<int64_t> mask, FloatAttr,
                                    bool) {
  if (sizes.size() != 6 || (!mask.empty() && mask.size() != 4)) // P-AT1
    return emitError() << "an attention has 6 sizes and 4 strides of a mask, not " << sizes.size()
                       << " and " << mask.size();
  for (ArrayRef<int64_t> strides : {query, key, value, out}) {
    if (strides.size() != 4) // P-AT1
      return emitError() << "an attention has operands of 4 strides, not " << strides.size();
    if (strides.back() != 1) // P-AT2
      return emitError() << "an attention's operands have contiguous rows, not a last stride of "
                         << strides.back();
  }
  return success();
}

double AttentionAttr::getFlops() const {
  ArrayRef<int64_t> sizes = getSizes();
  return 2.0 * multiply(sizes.take_front(4)) * (sizes[4] + sizes[5]);
}
