//===- DrawAttr.cpp - states that begin with drawn numbers ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/DrawAttr.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace gridloom;
using Distribution = Draw::Distribution;

static constexpr std::pair<Distribution, StringLiteral> kNames[] = {
    {Distribution::Constant, "constant"},
    {Distribution::Uniform, "uniform"},
    {Distribution::Normal, "normal"}};

DictionaryAttr loom::makeDrawAttr(MLIRContext *context, const Draw &draw) {
  Builder builder(context);
  StringRef name;
  for (auto [distribution, known] : kNames)
    if (distribution == draw.distribution)
      name = known;
  return builder.getDictionaryAttr(
      {builder.getNamedAttr("distribution", builder.getStringAttr(name)),
       builder.getNamedAttr("first", builder.getF64FloatAttr(draw.first)),
       builder.getNamedAttr("second", builder.getF64FloatAttr(draw.second)),
       builder.getNamedAttr("seed", builder.getI64IntegerAttr(static_cast<int64_t>(draw.seed))),
       builder.getNamedAttr("stream",
                            builder.getI64IntegerAttr(static_cast<int64_t>(draw.stream)))});
}

std::optional<Draw> loom::readDraw(Attribute attribute) {
  auto fields = dyn_cast_or_null<DictionaryAttr>(attribute);
  if (!fields)
    return std::nullopt;
  auto name = fields.getAs<StringAttr>("distribution");
  auto first = fields.getAs<FloatAttr>("first"), second = fields.getAs<FloatAttr>("second");
  auto seed = fields.getAs<IntegerAttr>("seed"), stream = fields.getAs<IntegerAttr>("stream");
  if (!name || !first || !second || !seed || !stream)
    return std::nullopt;
  for (auto [distribution, known] : kNames)
    if (known == name.getValue())
      return Draw{distribution, first.getValueAsDouble(), second.getValueAsDouble(),
                  static_cast<uint64_t>(seed.getInt()), static_cast<uint64_t>(stream.getInt())};
  return std::nullopt;
}
