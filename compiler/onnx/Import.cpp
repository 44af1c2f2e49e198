//===- Import.cpp - ONNX models as loom programs --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Import.h"

#include "compiler/onnx/Annotations.h"
#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/States.h"
#include "dialects/loom/Derivatives.h"
#include "dialects/loom/Training.h"
#include "passes/differentiate/Pullbacks.h"
#include "support/Text.h"

#include "mlir/IR/Verifier.h"

#include "onnx-ml.pb.h"

#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// IR versions the schema describes.
static constexpr int64_t kFirstIr = 3, kLastIr = onnx::IR_VERSION;

std::string ImportOptions::addDim(StringRef text) {
  auto [name, sizes] = text.rsplit('=');
  std::string malformed =
      ("--dim " + text + " is not NAME=SIZE[,SIZE]..., e.g. --dim batch=1,8").str();
  if (name.empty() || sizes.empty())
    return malformed;
  for (const auto &dim : dims)
    if (dim.first == name)
      return ("--dim gives '" + name + "' twice; list its sizes as " + name + "=SIZE,SIZE").str();
  std::vector<int64_t> values;
  for (StringRef size : llvm::split(sizes, ',')) {
    int64_t value = 0;
    if (size.getAsInteger(10, value))
      return malformed;
    if (value < 1)
      return ("--dim " + text + ": " + size + " is not a size").str();
    if (llvm::is_contained(values, value))
      return ("--dim " + text + " lists " + size + " twice").str();
    values.push_back(value);
  }
  dims.emplace_back(name.str(), std::move(values));
  return "";
}

std::string ImportOptions::addState(StringRef text) {
  auto [input, output] = text.split('=');
  if (input.empty() || output.empty() || output.contains('=') || input.count('*') > 1 ||
      input.count('*') != output.count('*'))
    return ("--state " + text + " is not INPUT=OUTPUT, e.g. --state 'past_*=present_*'").str();
  states.emplace_back(input.str(), output.str());
  return "";
}

namespace {

class Importer {
public:
  Importer(MLIRContext &context, const Model &model, const ImportOptions &options)
      : builder(&context), model(model), options(options),
        loc(NameLoc::get(builder.getStringAttr(model.path.string()))) {
    // The model may compute derivatives itself.
    if (llvm::any_of(model.proto->opset_import(), [](const onnx::OperatorSetIdProto &opset) {
          return opset.domain() == kTrainingDomain;
        }))
      this->options.marksTies = true;
  }

  OwningOpRef<ModuleOp> run() {
    if (failed(checkVersions()) || failed(checkNames(model.proto->graph())) || failed(checkDims()))
      return {};
    OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
    TensorPool pool(model, *module, options.isTraining);
    ImportOptions inference = options;
    inference.isInference = options.isInference || options.isTraining;
    inference.isTraining = false;
    for (const Bindings &bindings : getSpecialisations())
      if ((options.isTraining &&
           failed(importFunction(*module, pool, bindings, loom::kTrainStep, options))) ||
          failed(importFunction(*module, pool, bindings, loom::kMain, inference)))
        return {};
    eraseUnusedWeights(*module);
    if (failed(importAnnotations(model, *module)))
      return {};
    (*module)->setAttr(loom::kModel, describeModel());
    (*module)->setAttr(loom::kFolded, pool.getFolded());
    if (options.isTraining)
      (*module)->setAttr(loom::kTrains, builder.getUnitAttr());
    if (options.marksTies)
      (*module)->setAttr(loom::kTies, builder.getUnitAttr());
    return module;
  }

private:
  LogicalResult checkVersions() const {
    int64_t ir = model.proto->ir_version(), opset = getOpset(model);
    if (ir < kFirstIr || ir > kLastIr)
      return emitError(loc) << "IR version " << ir << " is not one of " << kFirstIr << " to "
                            << kLastIr << "; convert the model with onnx.version_converter";
    // A model without standard operators needs none.
    bool isStandard = llvm::any_of(model.proto->graph().node(), [](const onnx::NodeProto &node) {
      return normalizeDomain(node.domain()).empty();
    });
    if (opset == 0 && !isStandard)
      return success();
    if (opset == 0)
      return emitError(loc) << "the model imports no version of the standard operator set";
    if (opset < kFirstOpset || opset > kLastOpset)
      return emitError(loc) << "opset " << opset << " is not one of " << kFirstOpset << " to "
                            << kLastOpset << "; convert the model with onnx.version_converter";
    return success();
  }

  /// Reports and dumps are UTF-8, and ONNX requires it of names.
  LogicalResult checkName(const std::string &name) const {
    if (llvm::json::isUTF8(name))
      return success();
    return emitError(loc) << "the name '" << llvm::json::fixUTF8(name)
                          << "' is not UTF-8; rename it in the model";
  }
  LogicalResult checkNames(const onnx::GraphProto &graph) const {
    LogicalResult result = checkName(graph.name());
    auto check = [&](const std::string &name) {
      if (succeeded(result))
        result = checkName(name);
    };
    for (const onnx::TensorProto &tensor : graph.initializer())
      check(tensor.name());
    for (const auto *list : {&graph.input(), &graph.output()})
      for (const onnx::ValueInfoProto &value : *list) {
        check(value.name());
        for (const auto &dim : value.type().tensor_type().shape().dim())
          check(dim.dim_param());
      }
    for (const onnx::NodeProto &node : graph.node()) {
      check(node.name());
      llvm::for_each(node.output(), check);
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g() && succeeded(result))
          result = checkNames(attribute.g());
    }
    return result;
  }

  /// The inputs except initializers.
  SmallVector<const onnx::ValueInfoProto *> getInputs() const {
    llvm::StringSet<> initializers;
    for (const onnx::TensorProto &tensor : model.proto->graph().initializer())
      initializers.insert(tensor.name());
    SmallVector<const onnx::ValueInfoProto *> inputs;
    for (const onnx::ValueInfoProto &input : model.proto->graph().input())
      if (!initializers.contains(input.name()))
        inputs.push_back(&input);
    return inputs;
  }

  /// Every symbolic dimension of an input, with the input that has it first.
  llvm::MapVector<StringAttr, StringRef> collectDims() {
    llvm::MapVector<StringAttr, StringRef> dims;
    for (const onnx::ValueInfoProto *input : getInputs())
      for (int i = 0; i < input->type().tensor_type().shape().dim_size(); ++i)
        if (std::string name = getDimName(*input, i); !name.empty())
          dims.try_emplace(builder.getStringAttr(name), input->name());
    return dims;
  }

  static std::string listNames(const llvm::MapVector<StringAttr, StringRef> &dims) {
    std::string names;
    for (const auto &[name, input] : dims)
      names += (names.empty() ? "" : ", ") + name.str();
    return names.empty() ? "none" : names;
  }

  /// Fails unless every dimension has a size, and every size a dimension.
  LogicalResult checkDims() {
    llvm::MapVector<StringAttr, StringRef> dims = collectDims();
    LogicalResult result = success();
    for (const onnx::ValueInfoProto &input : model.proto->graph().input())
      if (input.type().has_tensor_type() && !input.type().tensor_type().has_shape())
        result = emitError(loc) << "input '" << input.name()
                                << "' has no shape; add one, e.g. with onnx.shape_inference";
    auto isBound = [&](StringRef name) {
      return llvm::any_of(options.dims, [&](const auto &dim) { return dim.first == name; });
    };
    // Exporters give sums names such as `past + sequence` and `past + 1`.
    auto isSum = [&](StringRef name) {
      return name.contains(" + ") && llvm::all_of(llvm::split(name, " + "), [&](StringRef part) {
               return isBound(part) || llvm::all_of(part, llvm::isDigit);
             });
    };
    std::string open, remedy;
    for (const auto &[name, input] : dims)
      if (isSum(name) && !isBound(name)) {
        sums.push_back(name.str());
      } else if (!isBound(name)) {
        open += (open.empty() ? "" : " and ") + name.str();
        remedy += " --dim " + quoteForShell(name.str() + "=SIZE");
      }
    if (!open.empty())
      result = emitError(loc) << "give " << open << " a size:" << remedy;
    for (const auto &[name, sizes] : options.dims)
      if (!dims.contains(builder.getStringAttr(name)))
        result = emitError(loc) << "no input has a dimension '" << name
                                << "'; the model's are: " << listNames(dims);
    return result;
  }

  SmallVector<Bindings> getSpecialisations() const {
    SmallVector<Bindings> result(1);
    for (const auto &[name, sizes] : options.dims) {
      SmallVector<Bindings> extended;
      for (const Bindings &bindings : result)
        for (int64_t size : sizes) {
          extended.push_back(bindings);
          extended.back()[name] = size;
        }
      result = std::move(extended);
    }
    for (Bindings &bindings : result)
      for (const std::string &sum : sums) {
        int64_t size = 0, number = 0;
        for (StringRef part : llvm::split(sum, " + "))
          size += part.getAsInteger(10, number) ? bindings.lookup(part) : number;
        bindings[sum] = size;
      }
    return result;
  }

  /// The dimension that is cut into micro-batches: the first one of all inputs that name theirs.
  FailureOr<StringRef> findBatch(const Bindings &bindings) {
    std::string found;
    SmallVector<std::pair<std::string, std::string>> others; // dimensions that are not first
    std::string flag = "--microbatches " + std::to_string(options.microbatches);
    for (const onnx::ValueInfoProto *input : getInputs()) {
      const onnx::TensorShapeProto &shape = input->type().tensor_type().shape();
      if (shape.dim_size() == 0)
        continue;
      std::string name = getDimName(*input, 0);
      for (int i = 1; i < shape.dim_size(); ++i)
        others.push_back({getDimName(*input, i), input->name()});
      if (!found.empty() && !name.empty() && name != found)
        return emitError(loc) << flag << ": inputs begin with dimensions '" << found << "' and '"
                              << name << "'; a batch that is cut has one name";
      found = name.empty() ? found : name;
    }
    auto size = bindings.find(found);
    if (size == bindings.end())
      return emitError(loc) << flag << ": no input begins with a named dimension, the batch; "
                            << "export the model with one";
    for (const auto &[name, input] : others)
      if (llvm::is_contained(llvm::split(name, " + "), found))
        return emitError(loc) << flag << ": input '" << input << "' has the batch '" << found
                              << "' in a dimension that is not its first; put it first in the "
                              << "model";
    for (const std::string &sum : sums)
      if (llvm::is_contained(llvm::split(sum, " + "), found))
        return emitError(loc) << flag << ": dimension '" << sum << "' is computed from the batch '"
                              << found << "', which is cut";
    if (size->second % options.microbatches == 0)
      return size->first;
    int64_t below = options.microbatches, above = below;
    while (size->second % below)
      --below;
    while (above < size->second && size->second % above)
      ++above;
    return emitError(loc) << flag << " does not divide the batch '" << found << "' of "
                          << size->second << "; "
                          << (above <= size->second
                                  ? "the nearest that do are " + std::to_string(below) + " and " +
                                        std::to_string(above)
                                  : "the nearest that does is " + std::to_string(below));
  }

  /// `main` for the first, `main_batch8` for others; never the name of a weight.
  std::string getSymbol(ModuleOp module, const TensorPool &pool, const Bindings &bindings,
                        StringRef entry) const {
    std::string symbol = entry.str();
    if (llvm::any_of(module.getOps<func::FuncOp>(), [&](func::FuncOp other) {
          auto called = other->getAttrOfType<StringAttr>(loom::kEntry);
          return called && called.getValue() == entry;
        }))
      for (const auto &[name, sizes] : options.dims)
        if (sizes.size() > 1)
          symbol += "_" + name + std::to_string(bindings.lookup(name));
    while (pool.contains(symbol))
      symbol += "_";
    return symbol;
  }

  LogicalResult importFunction(ModuleOp module, TensorPool &pool, const Bindings &bindings,
                               StringRef entry, const ImportOptions &form) {
    std::string symbol = getSymbol(module, pool, bindings, entry);
    Bindings sizes = bindings;
    StringRef batch;
    if (form.isTraining && form.microbatches > 1) {
      FailureOr<StringRef> found = findBatch(bindings);
      if (failed(found))
        return failure();
      batch = *found;
      sizes[batch] /= form.microbatches;
    }
    func::FuncOp function = GraphImporter(model, pool, sizes, form).import(module, symbol);
    if (!function)
      return failure();
    if (!batch.empty())
      function->setAttr(
          loom::kBatch,
          builder.getDictionaryAttr(
              {builder.getNamedAttr("name", builder.getStringAttr(batch)),
               builder.getNamedAttr("parts", builder.getI64IntegerAttr(form.microbatches))}));
    SmallVector<NamedAttribute> dims;
    for (const auto &[name, size] : bindings)
      dims.push_back(builder.getNamedAttr(name, builder.getI64IntegerAttr(size)));
    function->setAttr(loom::kEntry, builder.getStringAttr(entry));
    function->setAttr(loom::kDims, builder.getDictionaryAttr(dims));
    return declareStates(function, options);
  }

  /// Erases weights whose shape alone was read.
  static void eraseUnusedWeights(ModuleOp module) {
    llvm::DenseSet<StringAttr> used;
    module.walk([&](loom::GetWeightOp op) { used.insert(op.getNameAttr().getAttr()); });
    for (loom::WeightOp weight : llvm::make_early_inc_range(module.getOps<loom::WeightOp>()))
      if (!used.contains(weight.getSymNameAttr()))
        weight.erase();
  }

  DictionaryAttr describeModel() {
    SmallVector<NamedAttribute> attributes{
        builder.getNamedAttr("path", builder.getStringAttr(model.path.string())),
        builder.getNamedAttr("bytes", builder.getI64IntegerAttr(model.bytes)),
        builder.getNamedAttr("sha256", builder.getStringAttr(model.sha256))};
    SmallVector<NamedAttribute> data;
    for (const auto &[file, fingerprint] : model.data)
      data.push_back(builder.getNamedAttr(file, builder.getStringAttr(fingerprint)));
    if (!data.empty())
      attributes.push_back(builder.getNamedAttr("data", builder.getDictionaryAttr(data)));
    return builder.getDictionaryAttr(attributes);
  }

  Builder builder;
  const Model &model;
  ImportOptions options;
  /// Dimensions whose sizes are sums of others.
  std::vector<std::string> sums;
  Location loc;
};

} // namespace

OwningOpRef<ModuleOp> gridloom::importOnnx(MLIRContext &context, const std::filesystem::path &path,
                                           const ImportOptions &options) {
  context.loadDialect<func::FuncDialect, dist::DistDialect, loom::LoomDialect>();
  DialectRegistry pullbacks;
  registerPullbacks(pullbacks);
  context.appendDialectRegistry(pullbacks);
  Model model;
  if (std::string error = readModel(path, model); !error.empty()) {
    emitError(UnknownLoc::get(&context)) << error;
    return {};
  }
  model.mayLackWeights = options.mayLackWeights;
  OwningOpRef<ModuleOp> module = Importer(context, model, options).run();
  // The verifier reports types that ONNX allows and the operation does not.
  if (module && failed(verify(*module)))
    return {};
  return module;
}
