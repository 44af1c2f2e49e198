//===- MachineAttr.cpp - the machine that costs depend on, in IR ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/MachineAttr.h"

#include "cluster/Presets.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;
using cluster::DeviceKind;
using cluster::EfficiencyCurve;
using cluster::kClassNames;
using cluster::kTypeNames;
using cluster::Level;

cluster::NumberType gridloom::dist::getNumberType(Type element) {
  return element.isF16()    ? cluster::NumberType::F16
         : element.isBF16() ? cluster::NumberType::Bf16
         : element.isF64()  ? cluster::NumberType::F64
                            : cluster::NumberType::F32;
}

//===----------------------------------------------------------------------===//
// To attributes
//===----------------------------------------------------------------------===//

static Attribute makeCurve(Builder &builder, const EfficiencyCurve &curve) {
  SmallVector<double> numbers;
  for (auto [size, share] : curve.points)
    numbers.append({size, share});
  return builder.getDenseF64ArrayAttr(numbers);
}

static Attribute makeKind(Builder &builder, const DeviceKind &kind) {
  NamedAttrList fields, rates, curves;
  fields.set("name", builder.getStringAttr(kind.name));
  fields.set("target", builder.getStringAttr(kind.target));
  fields.set("memory_bytes", builder.getI64IntegerAttr(kind.memoryBytes));
  for (const cluster::NumberField &field : cluster::getNumberFields())
    if (!field.mayBeAbsent || kind.*field.member != 0)
      fields.set(field.name, builder.getF64FloatAttr(kind.*field.member));
  for (auto [work, name] : llvm::enumerate(kClassNames)) {
    NamedAttrList ofClass;
    for (auto [type, rate] : llvm::enumerate(kind.flopsPerSecond[work]))
      if (rate > 0)
        ofClass.set(kTypeNames[type], builder.getF64FloatAttr(rate));
    rates.set(name, ofClass.getDictionary(builder.getContext()));
    if (!kind.efficiency[work].points.empty())
      curves.set(name, makeCurve(builder, kind.efficiency[work]));
  }
  if (!kind.memoryEfficiency.points.empty())
    curves.set("memory", makeCurve(builder, kind.memoryEfficiency));
  fields.set("flops_per_second", rates.getDictionary(builder.getContext()));
  fields.set("efficiency", curves.getDictionary(builder.getContext()));
  return fields.getDictionary(builder.getContext());
}

static Attribute makeLevel(Builder &builder, const Level &level) {
  NamedAttrList fields;
  fields.set("block", builder.getI64IntegerAttr(level.block));
  fields.set("latency_seconds", builder.getF64FloatAttr(level.latencySeconds));
  fields.set("bytes_per_second", builder.getF64FloatAttr(level.bytesPerSecond));
  return fields.getDictionary(builder.getContext());
}

DictionaryAttr gridloom::dist::makeMachineAttr(MLIRContext *context,
                                               const cluster::Machine &machine) {
  Builder builder(context);
  SmallVector<Attribute> kinds, levels;
  for (const DeviceKind &kind : machine.kinds)
    kinds.push_back(makeKind(builder, kind));
  for (const Level &level : machine.levels)
    levels.push_back(makeLevel(builder, level));
  NamedAttrList fields;
  fields.set("kinds", builder.getArrayAttr(kinds));
  fields.set("levels", builder.getArrayAttr(levels));
  return fields.getDictionary(context);
}

//===----------------------------------------------------------------------===//
// From attributes
//===----------------------------------------------------------------------===//

namespace {
/// Reads fields one by one and remembers whether all were valid.
class AttrReader {
public:
  double getNumber(DictionaryAttr from, StringRef name, bool mayBeZero = false) {
    auto number = get<FloatAttr>(from, name);
    double value = number && number.getType().isF64() ? number.getValueAsDouble() : -1;
    isSound &= std::isfinite(value) && (mayBeZero ? value >= 0 : value > 0);
    return value;
  }
  int64_t getInteger(DictionaryAttr from, StringRef name, int64_t least) {
    auto number = get<IntegerAttr>(from, name);
    isSound &= number && number.getType().isSignlessInteger(64) && number.getInt() >= least;
    return isSound ? number.getInt() : least;
  }
  std::string getText(DictionaryAttr from, StringRef name) {
    auto text = get<StringAttr>(from, name);
    return text ? text.str() : "";
  }
  /// Null, which makes the machine invalid, if there is none.
  template <typename AttrT> AttrT get(DictionaryAttr from, StringRef name) {
    auto found = from ? from.getAs<AttrT>(name) : AttrT();
    isSound &= bool(found);
    return found;
  }
  EfficiencyCurve readCurve(DictionaryAttr from, StringRef name);
  DeviceKind readKind(DictionaryAttr from);
  Level readLevel(DictionaryAttr from);

  bool isSound = true;
};
} // namespace

/// A missing curve is constant.
EfficiencyCurve AttrReader::readCurve(DictionaryAttr from, StringRef name) {
  EfficiencyCurve curve;
  if (!from || !from.contains(name))
    return curve;
  auto numbers = get<DenseF64ArrayAttr>(from, name);
  isSound &= numbers && numbers.size() % 2 == 0;
  for (int64_t i = 0; isSound && i < numbers.size(); i += 2)
    curve.points.emplace_back(numbers[i], numbers[i + 1]);
  isSound &= curve.isSound();
  return curve;
}

DeviceKind AttrReader::readKind(DictionaryAttr from) {
  DeviceKind kind;
  kind.name = getText(from, "name");
  kind.target = getText(from, "target");
  kind.memoryBytes = getInteger(from, "memory_bytes", 0);
  for (const cluster::NumberField &field : cluster::getNumberFields())
    if (!field.mayBeAbsent || (from && from.contains(field.name))) {
      kind.*field.member = getNumber(from, field.name, field.mayBeZero);
      isSound &= !field.isShare || kind.*field.member <= 1;
    }
  auto rates = get<DictionaryAttr>(from, "flops_per_second");
  auto curves = get<DictionaryAttr>(from, "efficiency");
  for (auto [work, name] : llvm::enumerate(kClassNames)) {
    auto ofClass = get<DictionaryAttr>(rates, name);
    for (auto [type, rate] : llvm::enumerate(kind.flopsPerSecond[work]))
      if (ofClass && ofClass.contains(kTypeNames[type]))
        rate = getNumber(ofClass, kTypeNames[type]);
    kind.efficiency[work] = readCurve(curves, name);
  }
  isSound &= kind.flopsPerSecond[0][static_cast<size_t>(cluster::NumberType::F32)] > 0;
  kind.memoryEfficiency = readCurve(curves, "memory");
  return kind;
}

Level AttrReader::readLevel(DictionaryAttr from) {
  return {getInteger(from, "block", 1), getNumber(from, "latency_seconds", /*mayBeZero=*/true),
          getNumber(from, "bytes_per_second")};
}

std::optional<cluster::Machine> gridloom::dist::parseMachineAttr(Attribute attr) {
  cluster::Machine machine;
  AttrReader reader;
  auto fields = dyn_cast_or_null<DictionaryAttr>(attr);
  auto kinds = reader.get<ArrayAttr>(fields, "kinds"),
       levels = reader.get<ArrayAttr>(fields, "levels");
  if (!kinds || !levels || kinds.empty())
    return std::nullopt;
  for (Attribute kind : kinds)
    machine.kinds.push_back(reader.readKind(dyn_cast<DictionaryAttr>(kind)));
  for (Attribute level : levels) {
    machine.levels.push_back(reader.readLevel(dyn_cast<DictionaryAttr>(level)));
    // A block consists of whole blocks of the level below; the last level's block does not matter.
    size_t count = machine.levels.size();
    if (count > 2 && machine.levels[count - 2].block % machine.levels[count - 3].block != 0)
      return std::nullopt;
  }
  return reader.isSound ? std::optional(machine) : std::nullopt;
}

std::shared_ptr<const cluster::Machine> gridloom::dist::getMachine(ModuleOp module) {
  if (module)
    if (Attribute attr = module->getAttr(kCluster))
      if (std::optional<cluster::Machine> machine = parseMachineAttr(attr))
        return std::make_shared<const cluster::Machine>(std::move(*machine));
  static const auto usual = [] {
    const cluster::Preset &host = cluster::getUsualPreset("cpu");
    return std::make_shared<const cluster::Machine>(
        cluster::makeMachine(cluster::makeHosts(host, host.devices), host.devices));
  }();
  return usual;
}
