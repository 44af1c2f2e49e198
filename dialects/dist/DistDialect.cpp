//===- DistDialect.cpp - attributes, types, registration ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Dist.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom::dist;

#include "dialects/dist/DistDialect.cpp.inc"
#include "dialects/dist/DistEnums.cpp.inc"
#include "dialects/dist/DistInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/dist/DistTypes.cpp.inc"

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/dist/DistAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/dist/DistTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/dist/DistOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Parsing and printing: {"data", "model", ?} * 64
//===----------------------------------------------------------------------===//

static ParseResult parseDimBody(AsmParser &parser, SmallVectorImpl<StringAttr> &axes, bool &open,
                                int64_t &granule) {
  auto parseElement = [&]() -> ParseResult {
    if (succeeded(parser.parseOptionalQuestion())) {
      open = true;
      return success();
    }
    std::string name;
    if (open || parser.parseString(&name))
      return parser.emitError(parser.getCurrentLocation(), "expected an axis name; `?` comes last");
    axes.push_back(StringAttr::get(parser.getContext(), name));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, parseElement))
    return failure();
  if (succeeded(parser.parseOptionalStar()) && parser.parseInteger(granule))
    return failure();
  return success();
}

static void printDimBody(AsmPrinter &printer, ArrayRef<StringAttr> axes, bool open,
                         int64_t granule) {
  printer << "{";
  llvm::interleaveComma(axes, printer, [&](StringAttr axis) { printer << axis; });
  if (open)
    printer << (axes.empty() ? "?" : ", ?");
  printer << "}";
  if (granule != 1)
    printer << " * " << granule;
}

Attribute DimShardingAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringAttr> axes;
  bool open = false;
  int64_t granule = 1;
  if (parser.parseLess() || parseDimBody(parser, axes, open, granule) || parser.parseGreater())
    return {};
  return get(parser.getContext(), axes, open, granule);
}

void DimShardingAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printDimBody(printer, getAxes(), getOpen(), getGranule());
  printer << ">";
}

static ParseResult parseUnreduced(AsmParser &parser, SmallVectorImpl<StringAttr> &axes,
                                  ReductionKind &reduction) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, [&]() -> ParseResult {
    std::string name;
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseString(&name) || parser.parseEqual() || parser.parseKeyword(&keyword))
      return failure();
    std::optional<ReductionKind> kind = symbolizeReductionKind(keyword);
    if (!kind)
      return parser.emitError(loc, "unknown reduction '") << keyword << "'";
    if (!axes.empty() && *kind != reduction)
      return parser.emitError(loc, "unreduced axes combine in one way, not ")
             << stringifyReductionKind(reduction) << " and " << keyword;
    reduction = *kind;
    axes.push_back(StringAttr::get(parser.getContext(), name));
    return success();
  });
}

Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  FlatSymbolRefAttr mesh;
  SmallVector<DimShardingAttr> dims;
  SmallVector<StringAttr> unreduced;
  ReductionKind reduction = ReductionKind::Sum;
  auto parseDim = [&]() -> ParseResult {
    SmallVector<StringAttr> axes;
    bool open = false;
    int64_t granule = 1;
    if (parseDimBody(parser, axes, open, granule))
      return failure();
    dims.push_back(DimShardingAttr::get(parser.getContext(), axes, open, granule));
    return success();
  };
  if (parser.parseLess() || parser.parseAttribute(mesh) || parser.parseComma() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDim))
    return {};
  if (succeeded(parser.parseOptionalComma()) &&
      (parser.parseKeyword("unreduced") || parser.parseEqual() ||
       parseUnreduced(parser, unreduced, reduction)))
    return {};
  if (parser.parseGreater())
    return {};
  return get(parser.getContext(), mesh, dims, unreduced, reduction);
}

void ShardingAttr::print(AsmPrinter &printer) const {
  printer << "<" << getMesh() << ", [";
  llvm::interleaveComma(getDims(), printer, [&](DimShardingAttr dim) {
    printDimBody(printer, dim.getAxes(), dim.getOpen(), dim.getGranule());
  });
  printer << "]";
  if (!getUnreduced().empty()) {
    printer << ", unreduced = {";
    llvm::interleaveComma(getUnreduced(), printer, [&](StringAttr axis) {
      printer << axis << " = " << stringifyReductionKind(getReduction());
    });
    printer << "}";
  }
  printer << ">";
}

Attribute SplitsAttr::parse(AsmParser &parser, Type) {
  SmallVector<DimShardingAttr> factors;
  SmallVector<StringAttr> unreduced;
  auto parseFactor = [&]() -> ParseResult {
    SmallVector<StringAttr> axes;
    bool open = false;
    int64_t granule = 1;
    SMLoc loc = parser.getCurrentLocation();
    if (parseDimBody(parser, axes, open, granule))
      return failure();
    if (open)
      return parser.emitError(loc, "a factor is split or whole; `?` is for dimensions");
    factors.push_back(DimShardingAttr::get(parser.getContext(), axes, open, granule));
    return success();
  };
  auto parseAxis = [&]() -> ParseResult {
    std::string name;
    if (parser.parseString(&name))
      return failure();
    unreduced.push_back(StringAttr::get(parser.getContext(), name));
    return success();
  };
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseFactor))
    return {};
  if (succeeded(parser.parseOptionalComma()) &&
      (parser.parseKeyword("unreduced") || parser.parseEqual() ||
       parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, parseAxis)))
    return {};
  if (parser.parseGreater())
    return {};
  return get(parser.getContext(), factors, unreduced);
}

void SplitsAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getFactors(), printer, [&](DimShardingAttr factor) {
    printDimBody(printer, factor.getAxes(), /*open=*/false, factor.getGranule());
  });
  printer << "]";
  if (!getUnreduced().empty()) {
    printer << ", unreduced = {";
    llvm::interleaveComma(getUnreduced(), printer, [&](StringAttr axis) { printer << axis; });
    printer << "}";
  }
  printer << ">";
}

//===----------------------------------------------------------------------===//
// origin
//===----------------------------------------------------------------------===//

std::string OriginAttr::describeAxis(StringAttr axis) const {
  for (const auto &[name, text] : getAxes())
    if (name == axis)
      return text.str();
  return describe();
}

std::string OriginAttr::describe() const {
  std::string text = getGiven() ? getGiven().str() : "";
  auto add = [&](StringRef what, StringAttr why) {
    text += (text.empty() ? "" : "; ") + what.str() + ": " + why.str();
  };
  for (const auto &[axis, why] : getAxes())
    add(axis, why);
  if (getReplicated())
    add("replicated", getReplicated());
  return text;
}

Attribute OriginAttr::parse(AsmParser &parser, Type) {
  StringAttr given, replicated, tried;
  SmallVector<std::pair<StringAttr, StringAttr>> axes;
  auto parsePart = [&]() -> ParseResult {
    if (succeeded(parser.parseOptionalKeyword("replicated"))) {
      if (parser.parseEqual() || parser.parseAttribute(replicated))
        return failure();
      return succeeded(parser.parseOptionalKeyword("tried")) ? parser.parseAttribute(tried)
                                                             : ParseResult(success());
    }
    StringAttr text;
    if (parser.parseAttribute(text))
      return failure();
    if (failed(parser.parseOptionalEqual())) {
      given = text;
      return success();
    }
    axes.emplace_back(text, StringAttr());
    return parser.parseAttribute(axes.back().second);
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, parsePart))
    return {};
  return get(parser.getContext(), given, axes, replicated, tried);
}

void OriginAttr::print(AsmPrinter &printer) const {
  StringRef separator = "";
  auto next = [&]() -> AsmPrinter & {
    printer << separator;
    separator = ", ";
    return printer;
  };
  printer << "<";
  if (getGiven())
    next() << getGiven();
  for (const auto &[axis, text] : getAxes())
    next() << axis << " = " << text;
  if (getReplicated())
    next() << "replicated = " << getReplicated();
  if (getTried())
    printer << " tried " << getTried();
  printer << ">";
}
