//===- Ties.cpp - weights that become one parameter -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Ties.h"

#include "compiler/onnx/EqualWeights.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/WeightUse.h"
#include "passes/train/Initializers.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace gridloom;
using onnx_import::EqualWeights;

const char *const gridloom::kTieGrammar =
    "'A=B' makes weights A and B one parameter, which gets the sum of both gradients and is called "
    "A; 'A=transpose(B)' where B is A's transpose. Both have the same values in the model";

std::string gridloom::formatTie(const std::string &kept, const std::string &other,
                                bool isTransposed) {
  return kept + "=" + (isTransposed ? "transpose(" + other + ")" : other);
}

namespace {

class Tier {
public:
  Tier(ModuleOp module, const TrainOptions &options) : module(module), options(options) {}

  std::string run(const std::string &path) {
    onnx_import::Model model;
    if (std::string error = readGraph(path, model); !error.empty())
      return error;
    SmallVector<std::string> texts(options.inits.begin(), options.inits.end());
    std::string error;
    std::optional<train::InitRules> rules = train::InitRules::parse(texts, error);
    if (!rules)
      return error;
    inits = std::move(*rules);
    for (const std::string &text : options.ties)
      if (std::string fault = tie(text, model); !fault.empty())
        return "--tie '" + text + "': " + fault;
    module->setAttr(loom::kTied, Builder(module.getContext()).getArrayAttr(ties));
    return "";
  }

private:
  std::string tie(StringRef text, const onnx_import::Model &model);
  std::string split(StringRef text);
  std::string findWeight(StringRef name, loom::WeightOp &weight);
  std::string checkTypes();
  std::string checkValues(const onnx_import::Model &model);
  void record();
  void replaceReads();
  EqualWeights getPair(bool transposed) {
    return {kept.getSymName().str(), other.getSymName().str(), transposed};
  }
  std::string suggest(bool transposed) {
    return "give --tie '" +
           formatTie(kept.getSymName().str(), other.getSymName().str(), transposed) + "'";
  }

  ModuleOp module;
  const TrainOptions &options;
  train::InitRules inits;
  loom::WeightOp kept, other; ///< of the current tie
  bool isTransposed = false;
  llvm::StringMap<std::string> gone; ///< tied weights, and what they are tied to
  SmallVector<Attribute> ties;
};

} // namespace

static RankedTensorType typeOf(loom::WeightOp weight) {
  return cast<RankedTensorType>(weight.getType());
}

static std::string describe(loom::WeightOp weight) {
  std::string text;
  llvm::raw_string_ostream(text) << "'" << weight.getSymName() << "' of " << typeOf(weight);
  return text;
}

static bool isReversed(RankedTensorType a, RankedTensorType b) {
  return a.getRank() == 2 && b.getRank() == 2 && a.getDimSize(0) == b.getDimSize(1) &&
         a.getDimSize(1) == b.getDimSize(0);
}

std::string Tier::findWeight(StringRef name, loom::WeightOp &weight) {
  weight = module.lookupSymbol<loom::WeightOp>(name);
  if (weight)
    return "";
  if (auto tied = gone.find(name); tied != gone.end())
    return "'" + name.str() + "' is tied to '" + tied->second + "' already; tie the others to '" +
           tied->second + "'";
  return "the program reads no weight '" + name.str() + "'";
}

/// Names may contain '=': splits at the first that has the name of a weight before it.
std::string Tier::split(StringRef text) {
  StringRef before, after;
  for (size_t at = text.find('='); at != StringRef::npos; at = text.find('=', at + 1)) {
    before = text.take_front(at).trim();
    after = text.drop_front(at + 1).trim();
    if (module.lookupSymbol<loom::WeightOp>(before))
      break;
  }
  if (before.empty() || after.empty())
    return std::string("is not of the form ") + kTieGrammar;
  isTransposed = !module.lookupSymbol<loom::WeightOp>(after) && after.consume_front("transpose(") &&
                 after.consume_back(")");
  if (std::string fault = findWeight(before, kept); !fault.empty())
    return fault;
  return findWeight(after.trim(), other);
}

std::string Tier::checkTypes() {
  RankedTensorType a = typeOf(kept), b = typeOf(other);
  if (kept == other)
    return "a weight is not tied to itself";
  if (!isa<FloatType>(a.getElementType()) || a.getElementType() != b.getElementType())
    return describe(kept) + " and " + describe(other) +
           " are not of one type of floats, and no gradient changes both alike";
  if (isTransposed ? isReversed(a, b) : a == b)
    return "";
  std::string fault = describe(kept) + " and " + (isTransposed ? "the transpose of " : "") +
                      describe(other) + " have different shapes";
  if (isTransposed ? a == b : isReversed(a, b))
    fault += "; " + suggest(!isTransposed);
  return fault;
}

/// Checks that both weights have the same values, unless --init gives others.
std::string Tier::checkValues(const onnx_import::Model &model) {
  if (inits.lookup({kept.getSymName(), typeOf(kept).getRank()}))
    return "";
  std::optional<onnx_import::WeightDifference> difference, turned;
  std::string error = compareWeights(model, getPair(isTransposed), difference);
  if (!error.empty() || !difference)
    return error;
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "'" << kept.getSymName() << "' is " << llvm::format("%.9g", difference->first) << " at [";
  llvm::interleaveComma(difference->index, os);
  os << "] and '" << other.getSymName() << "' is " << llvm::format("%.9g", difference->second)
     << " there";
  RankedTensorType a = typeOf(kept), b = typeOf(other);
  bool couldTurn = isTransposed ? a == b : isReversed(a, b);
  if (couldTurn && compareWeights(model, getPair(!isTransposed), turned).empty() && !turned)
    return text + "; " + suggest(!isTransposed);
  return text + "; neither wins: give both the same values in the model, or others by --init '" +
         kept.getSymName().str() + ": ...'";
}

void Tier::replaceReads() {
  SmallVector<loom::GetWeightOp> reads;
  module.walk([&](loom::GetWeightOp read) {
    if (read.getName() == other.getSymName())
      reads.push_back(read);
  });
  for (loom::GetWeightOp read : reads) {
    OpBuilder builder(read);
    Value value = loom::GetWeightOp::create(builder, read.getLoc(), kept.getType(),
                                            kept.getSymName(), Attribute(), loom::LayoutAttr());
    if (auto frozen = read->getAttr(loom::kFrozen))
      value.getDefiningOp()->setAttr(loom::kFrozen, frozen);
    if (isTransposed)
      value = loom::TransposeOp::create(builder, read.getLoc(), read.getType(), value,
                                        ArrayRef<int64_t>{1, 0});
    read.getOutput().replaceAllUsesWith(value);
    read.erase();
  }
}

/// Adds the tie. What was tied to the second weight is tied to the first from here on.
void Tier::record() {
  Builder builder(module.getContext());
  StringAttr from = other.getSymNameAttr(), to = kept.getSymNameAttr();
  auto make = [&](StringAttr name, bool transposed) {
    return builder.getDictionaryAttr(
        {builder.getNamedAttr("name", name), builder.getNamedAttr("to", to),
         builder.getNamedAttr("transposed", builder.getBoolAttr(transposed))});
  };
  for (Attribute &each : ties)
    if (auto known = cast<DictionaryAttr>(each); known.getAs<StringAttr>("to") == from)
      each = make(known.getAs<StringAttr>("name"),
                  known.getAs<BoolAttr>("transposed").getValue() != isTransposed);
  ties.push_back(make(from, isTransposed));
  for (auto &each : gone)
    if (each.second == from.getValue())
      each.second = to.str();
  gone[from] = to.str();
}

std::string Tier::tie(StringRef text, const onnx_import::Model &model) {
  if (std::string fault = split(text); !fault.empty())
    return fault;
  if (std::string fault = checkTypes(); !fault.empty())
    return fault;
  if (std::string fault = checkValues(model); !fault.empty())
    return fault;
  record();
  replaceReads();
  other.erase();
  return "";
}

std::string gridloom::tieWeights(ModuleOp module, const std::string &model,
                                 const TrainOptions &options) {
  return options.ties.empty() ? "" : Tier(module, options).run(model);
}
