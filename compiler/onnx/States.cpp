//===- States.cpp - values that outlive a call ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/States.h"

#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// The text that `*` stands for if `name` fits `pattern`, empty if the pattern has no `*`; nothing
/// if it does not fit.
static std::optional<StringRef> match(StringRef name, StringRef pattern) {
  auto [before, after] = pattern.split('*');
  if (!pattern.contains('*'))
    return name == pattern ? std::optional(StringRef()) : std::nullopt;
  if (name.size() < before.size() + after.size() || !name.consume_front(before) ||
      !name.consume_back(after))
    return std::nullopt;
  return name;
}

static std::string substitute(StringRef pattern, StringRef text) {
  auto [before, after] = pattern.split('*');
  return pattern.contains('*') ? (before + text + after).str() : pattern.str();
}

static LogicalResult declareState(func::FuncOp function, unsigned argument, StringRef output) {
  auto name = function.getArgAttrOfType<StringAttr>(argument, loom::kName);
  Location loc = NameLoc::get(name);
  if (function.getArgAttr(argument, loom::kState))
    return emitError(loc) << "--state names input '" << name.getValue() << "' twice";
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    if (function.getResultAttrOfType<StringAttr>(i, loom::kName).getValue() != output)
      continue;
    Type before = function.getArgumentTypes()[argument], after = function.getResultTypes()[i];
    if (before != after)
      return emitError(loc) << "state '" << name.getValue() << "' goes in as " << before
                            << " and comes out as '" << output << "' of " << after
                            << "; a state keeps its shape: give the model a cache of fixed size "
                               "that it writes into at a position";
    if (function.getResultAttr(i, loom::kState))
      return emitError(loc) << "--state names output '" << output << "' twice";
    function.setArgAttr(argument, loom::kState, name);
    function.setResultAttr(i, loom::kState, name);
    return success();
  }
  return emitError(loc) << "state '" << name.getValue() << "' has no output '" << output << "'";
}

/// The inputs' names; of many, the first ones.
static std::string listInputs(func::FuncOp function) {
  constexpr unsigned most = 8;
  std::string names;
  for (unsigned i = 0; i < std::min(function.getNumArguments(), most); ++i)
    names += (i ? ", " : "") + function.getArgAttrOfType<StringAttr>(i, loom::kName).str();
  if (function.getNumArguments() > most)
    names += " and " + std::to_string(function.getNumArguments() - most) + " more";
  return names;
}

LogicalResult onnx_import::declareStates(func::FuncOp function, const ImportOptions &options) {
  for (const auto &[input, output] : options.states) {
    bool found = false;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto name = function.getArgAttrOfType<StringAttr>(i, loom::kName);
      std::optional<StringRef> text = match(name.getValue(), input);
      if (!text)
        continue;
      found = true;
      if (failed(declareState(function, i, substitute(output, *text))))
        return failure();
    }
    if (!found)
      return emitError(UnknownLoc::get(function.getContext()))
             << "--state " << input << "=" << output << ": the model has no input '" << input
             << "'; its inputs are " << listInputs(function);
  }
  return success();
}
