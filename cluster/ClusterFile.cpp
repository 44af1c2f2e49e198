//===- ClusterFile.cpp - clusters in files ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/ClusterFile.h"

#include "cluster/Presets.h"
#include "support/JsonDepth.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unordered_map>

using namespace gridloom::cluster;
using nlohmann::json;

namespace {

/// Why a file is refused.
struct Refusal {
  std::string why;
};

/// The least and the most of a number, far beyond any machine: with them all times are finite.
struct Range {
  double least, most;
  bool has(double number) const { return number >= least && number <= most; }
};
constexpr Range kSeconds = {0, 1e9}, kPerSecond = {1e-9, 1e30}, kBytes = {1, 1e30},
                kCores = {1e-3, 1e6}, kUnhidden = {0, HUGE_VAL}, kSizes = {1e-9, 1e30},
                kShares = {1e-9, 1};

/// An object of the file, with its place there.
struct Object {
  const json &value;
  std::string place; ///< "links[3]"

  [[noreturn]] void refuse(const std::string &why) const {
    throw Refusal{(place.empty() ? "" : place + ": ") + why};
  }
  /// Refuses anything but an object with some of these fields.
  void requireFields(const std::vector<std::string> &known) const;
  bool has(const char *field) const { return value.contains(field); }
  const json &get(const char *field) const;
  std::string getText(const char *field) const;
  /// A number in the range, where 0 is only allowed if the range begins with it.
  double getNumber(const char *field, Range range) const;
  int64_t getCount(const char *field) const;
  Object getObject(const char *field) const;
  std::vector<Object> getObjects(const char *field) const;
  std::string nameField(const char *field) const {
    return place.empty() ? field : place + "." + field;
  }
};

/// Devices or a switch that a link names.
struct Nodes {
  uint32_t first, count;
  bool isGroup; ///< devices with a count
};

class Reader {
public:
  explicit Reader(const json &root) : root{root, ""} {}
  Cluster read();

private:
  uint32_t findKindNumber(const Object &device);
  void addNodes(const Object &where, const std::string &name, Nodes nodes);
  void readDevices();
  void readCores(const Object &device, uint32_t first, int64_t count);
  void readSwitches();
  void checkNames() const;
  std::optional<Nodes> findInGroup(const std::string &name) const;
  Nodes findEnd(const Object &link, const json &end) const;
  void readLink(const Object &object);

  Object root;
  Cluster cluster;
  std::unordered_map<std::string, uint32_t> kinds;
  std::unordered_map<std::string, Nodes> nodes;
};

} // namespace

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

void Object::requireFields(const std::vector<std::string> &known) const {
  if (!value.is_object())
    refuse("expected an object, found " + std::string(value.type_name()));
  for (const auto &[field, ignored] : value.items())
    if (std::find(known.begin(), known.end(), field) == known.end())
      refuse("unknown field '" + gridloom::makePrintable(field) + "'" +
             gridloom::suggest(field, known) + "; the fields are " + joinNames(known));
}

const json &Object::get(const char *field) const {
  auto found = value.find(field);
  if (found == value.end())
    refuse("field '" + std::string(field) + "' is missing");
  return *found;
}

std::string Object::getText(const char *field) const {
  const json &text = get(field);
  if (!text.is_string() || text.get_ref<const std::string &>().empty())
    refuse("'" + std::string(field) + "' has to be a name");
  return text.get<std::string>();
}

double Object::getNumber(const char *field, Range range) const {
  const json &number = get(field);
  double read = number.is_number() ? number.get<double>() : -1;
  bool mayBeZero = range.least == 0;
  std::string given = "'" + std::string(field) + "' is " + number.dump().substr(0, 40);
  if (!number.is_number() || !std::isfinite(read) || read < 0 || (read == 0 && !mayBeZero))
    refuse(given + "; it has to be a number " + (mayBeZero ? "of at least 0" : "above 0"));
  if (!range.has(read)) {
    char limits[64];
    snprintf(limits, sizeof limits, "; it has to be from %g to %g", range.least, range.most);
    refuse(given + limits);
  }
  return read;
}

int64_t Object::getCount(const char *field) const {
  const json &number = get(field);
  if (!number.is_number_integer() || number < 1 || number > kMaxDevices)
    refuse("'" + std::string(field) + "' is " + number.dump().substr(0, 40) +
           "; it has to be a whole number from 1 to " + std::to_string(kMaxDevices));
  return number.get<int64_t>();
}

Object Object::getObject(const char *field) const { return {get(field), nameField(field)}; }

std::vector<Object> Object::getObjects(const char *field) const {
  const json &list = get(field);
  if (!list.is_array())
    refuse("'" + std::string(field) + "' has to be a list");
  std::vector<Object> objects;
  objects.reserve(list.size());
  for (const json &element : list)
    objects.push_back({element, nameField(field) + "[" + std::to_string(objects.size()) + "]"});
  return objects;
}

//===----------------------------------------------------------------------===//
// Kinds of devices
//===----------------------------------------------------------------------===//

static EfficiencyCurve readCurve(const Object &object, const char *field) {
  EfficiencyCurve curve;
  const json &points = object.get(field);
  bool isSound = points.is_array() && !points.empty();
  for (const json &point : points) {
    if (!isSound || !point.is_array() || point.size() != 2 || !point[0].is_number() ||
        !point[1].is_number()) {
      isSound = false;
      break;
    }
    curve.points.emplace_back(point[0].get<double>(), point[1].get<double>());
    isSound = kSizes.has(curve.points.back().first) && kShares.has(curve.points.back().second);
  }
  if (!isSound || !curve.isSound())
    object.refuse(
        "'" + std::string(field) +
        "' has to be a list of [size, share], sizes in order from 1e-9 to 1e30 and shares "
        "from 1e-9 to 1");
  return curve;
}

static void readRates(const Object &object, DeviceKind &kind) {
  object.requireFields({kClassNames.begin(), kClassNames.end()});
  for (size_t work = 0; work < kClassNames.size(); ++work) {
    if (!object.has(kClassNames[work]))
      continue;
    Object rates = object.getObject(kClassNames[work]);
    rates.requireFields({kTypeNames.begin(), kTypeNames.end()});
    for (size_t type = 0; type < kTypeNames.size(); ++type)
      if (rates.has(kTypeNames[type]))
        kind.flopsPerSecond[work][type] = rates.getNumber(kTypeNames[type], kPerSecond);
  }
  if (kind.flopsPerSecond[0][static_cast<size_t>(NumberType::F32)] == 0)
    object.refuse("field 'contraction.f32' is missing");
}

/// By the unit in the field's name.
static Range getRange(const NumberField &field) {
  std::string_view name = field.name;
  return field.isShare                  ? kUnhidden
         : name.ends_with("per_second") ? kPerSecond
         : name.ends_with("seconds")    ? kSeconds
                                        : kCores;
}

static DeviceKind readKind(const Object &object) {
  std::vector<std::string> known = {"name", "target", "memory_bytes", "flops_per_second",
                                    "efficiency"};
  for (const NumberField &field : getNumberFields())
    known.emplace_back(field.name);
  object.requireFields(known);
  DeviceKind kind;
  kind.name = object.getText("name");
  if (object.has("target"))
    kind.target = object.getText("target");
  if (object.has("memory_bytes"))
    kind.memoryBytes =
        static_cast<int64_t>(std::min(object.getNumber("memory_bytes", kBytes), 0x1p62));
  for (const NumberField &field : getNumberFields())
    if (!field.mayBeAbsent || object.has(field.name)) {
      kind.*field.member = object.getNumber(field.name, getRange(field));
      if (field.isShare && kind.*field.member > 1)
        object.refuse("'" + std::string(field.name) + "' is a share, at most 1");
    }
  readRates(object.getObject("flops_per_second"), kind);
  if (object.has("efficiency")) {
    Object curves = object.getObject("efficiency");
    curves.requireFields({kClassNames[0], kClassNames[1], "memory"});
    for (size_t work = 0; work < kClassNames.size(); ++work)
      if (curves.has(kClassNames[work]))
        kind.efficiency[work] = readCurve(curves, kClassNames[work]);
    if (curves.has("memory"))
      kind.memoryEfficiency = readCurve(curves, "memory");
  }
  return kind;
}

//===----------------------------------------------------------------------===//
// Devices, switches and links
//===----------------------------------------------------------------------===//

/// The kind that a device names, from the file or the presets.
uint32_t Reader::findKindNumber(const Object &device) {
  std::string name = device.getText("kind");
  auto [entry, isNew] = kinds.try_emplace(name, static_cast<uint32_t>(cluster.kinds.size()));
  if (!isNew)
    return entry->second;
  if (const DeviceKind *preset = findKind(name)) {
    cluster.kinds.push_back(*preset);
    return entry->second;
  }
  kinds.erase(entry);
  std::vector<std::string> known = listKinds();
  for (const DeviceKind &kind : cluster.kinds)
    known.push_back(kind.name);
  device.refuse("unknown kind '" + gridloom::makePrintable(name) + "'" +
                gridloom::suggest(name, known) + "; describe it in 'device_kinds', or use one of " +
                joinNames(listKinds()));
}

void Reader::addNodes(const Object &where, const std::string &name, Nodes added) {
  if (!nodes.try_emplace(name, added).second)
    where.refuse("the name '" + gridloom::makePrintable(name) + "' is taken");
}

/// The cores that all devices of an entry share.
void Reader::readCores(const Object &device, uint32_t first, int64_t count) {
  const DeviceKind &kind = cluster.kinds[cluster.devices[first]];
  if (kind.cores == 0)
    device.refuse("devices cannot share 'cores': kind '" + gridloom::makePrintable(kind.name) +
                  "' does not say of how many 'cores' its rates are");
  cluster.sharedCores.push_back({first, static_cast<uint32_t>(count), device.getCount("cores")});
}

void Reader::readDevices() {
  static const std::vector<std::string> fields = {"name", "kind", "count", "cores"};
  for (const Object &device : root.getObjects("devices")) {
    device.requireFields(fields);
    std::string name = device.getText("name");
    bool isGroup = device.has("count");
    int64_t count = isGroup ? device.getCount("count") : 1;
    auto first = static_cast<uint32_t>(cluster.devices.size());
    if (first + count > kMaxDevices)
      device.refuse("there are more than " + std::to_string(kMaxDevices) + " devices");
    addNodes(device, name, {first, static_cast<uint32_t>(count), isGroup});
    cluster.devices.insert(cluster.devices.end(), static_cast<size_t>(count),
                           findKindNumber(device));
    if (device.has("cores"))
      readCores(device, first, count);
  }
  if (cluster.devices.empty())
    root.refuse("'devices' is empty");
}

void Reader::readSwitches() {
  if (!root.has("switches"))
    return;
  for (const Object &name : root.getObjects("switches")) {
    if (!name.value.is_string() || name.value.get_ref<const std::string &>().empty())
      name.refuse("a switch has to be a name");
    addNodes(name, name.value.get<std::string>(),
             {static_cast<uint32_t>(cluster.getNumNodes()), 1, /*isGroup=*/false});
    ++cluster.numSwitches;
  }
}

/// "gpu/2", the third of the devices called gpu.
std::optional<Nodes> Reader::findInGroup(const std::string &name) const {
  size_t slash = name.rfind('/');
  if (slash == std::string::npos)
    return std::nullopt;
  auto found = nodes.find(name.substr(0, slash));
  uint32_t index = 0;
  const char *last = name.data() + name.size();
  auto [stop, code] = std::from_chars(name.data() + slash + 1, last, index);
  if (found == nodes.end() || !found->second.isGroup || code != std::errc() || stop != last ||
      index >= found->second.count)
    return std::nullopt;
  return Nodes{found->second.first + index, 1, /*isGroup=*/false};
}

/// Refuses a node with the name of a group's device.
void Reader::checkNames() const {
  std::string taken;
  for (const auto &[name, ignored] : nodes)
    if (findInGroup(name) && (taken.empty() || name < taken))
      taken = name;
  if (!taken.empty())
    root.refuse("the name '" + gridloom::makePrintable(taken) + "' is taken by a device of '" +
                gridloom::makePrintable(taken.substr(0, taken.rfind('/'))) + "'");
}

Nodes Reader::findEnd(const Object &link, const json &end) const {
  if (!end.is_string())
    link.refuse("'ends' has to be two names");
  const auto &name = end.get_ref<const std::string &>();
  if (auto found = nodes.find(name); found != nodes.end())
    return found->second;
  if (std::optional<Nodes> found = findInGroup(name))
    return *found;
  std::vector<std::string> known;
  for (const auto &[other, ignored] : nodes)
    known.push_back(other);
  std::sort(known.begin(), known.end());
  // Comparing with every name of a large cluster would take long.
  link.refuse("there is no device or switch '" + gridloom::makePrintable(name) + "'" +
              (known.size() <= 1000 ? gridloom::suggest(name, known) : ""));
}

void Reader::readLink(const Object &object) {
  static const std::vector<std::string> fields = {"ends", "latency_seconds", "bytes_per_second",
                                                  "bytes_per_second_back"};
  object.requireFields(fields);
  const json &ends = object.get("ends");
  if (!ends.is_array() || ends.size() != 2)
    object.refuse("'ends' has to be two names");
  Nodes from = findEnd(object, ends[0]), to = findEnd(object, ends[1]);
  if (from.count > 1 && to.count > 1)
    object.refuse("both ends are groups of devices; join them by a switch");
  double there = object.getNumber("bytes_per_second", kPerSecond);
  double back = object.has("bytes_per_second_back")
                    ? object.getNumber("bytes_per_second_back", kPerSecond)
                    : there;
  double latency = object.getNumber("latency_seconds", kSeconds);
  // A line may stand for a million links, and a file have many lines.
  uint32_t added = std::max(from.count, to.count);
  if (int64_t links = int64_t(cluster.links.size()) + added; links > kMaxLinks)
    object.refuse("with the " + std::to_string(added) + " of this line the cluster has " +
                  std::to_string(links) + " links; at most " + std::to_string(kMaxLinks) +
                  " are read: describe fewer devices, or join what links between the same nodes "
                  "can do in one line");
  for (uint32_t i = 0; i < added; ++i) {
    Link link{from.first + (from.count > 1 ? i : 0),
              to.first + (to.count > 1 ? i : 0),
              latency,
              {there, back}};
    if (link.from == link.to)
      object.refuse("it joins a node with itself");
    cluster.links.push_back(link);
  }
}

Cluster Reader::read() {
  root.requireFields({"name", "device_kinds", "devices", "switches", "links"});
  if (root.has("name"))
    root.getText("name");
  if (root.has("device_kinds"))
    for (const Object &object : root.getObjects("device_kinds")) {
      DeviceKind kind = readKind(object);
      if (!kinds.try_emplace(kind.name, static_cast<uint32_t>(cluster.kinds.size())).second)
        object.refuse("the kind '" + gridloom::makePrintable(kind.name) + "' is there twice");
      cluster.kinds.push_back(std::move(kind));
    }
  readDevices();
  readSwitches();
  checkNames();
  if (root.has("links"))
    for (const Object &link : root.getObjects("links"))
      readLink(link);
  if (std::optional<uint32_t> device = findSeparateDevice(cluster))
    root.refuse("no links join device " + std::to_string(*device) + " with device 0");
  return std::move(cluster);
}

/// "line 3, column 5: ..." of the parser's message, without its own prefix.
static std::string describe(const json::exception &exception) {
  std::string text = exception.what();
  size_t at = text.find("line ");
  if (at == std::string::npos)
    at = text.find("] ") == std::string::npos ? 0 : text.find("] ") + 2;
  return gridloom::makePrintable(text.substr(at));
}

std::optional<Cluster> gridloom::cluster::readCluster(const std::string &path, std::string &error) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    error = "cannot read the cluster '" + makePrintable(path) + "'";
    return std::nullopt;
  }
  std::string start = "the cluster '" + makePrintable(path) + "' ";
  // A folder opens like a file, and fails when it is read.
  if (std::error_code code; std::filesystem::is_directory(path, code)) {
    error = start + "cannot be read: it is a folder";
    return std::nullopt;
  }
  try {
    std::string text(std::istreambuf_iterator<char>(stream), {});
    if (isDeepJson(text)) {
      error = start + "cannot be used: it has " + describeDeepJson();
      return std::nullopt;
    }
    Cluster cluster = Reader(json::parse(text)).read();
    cluster.name = path;
    return cluster;
  } catch (const json::exception &exception) {
    error = start + "is not JSON: " + describe(exception);
  } catch (const Refusal &refusal) {
    error = start + "cannot be used: " + refusal.why;
  } catch (const std::ios_base::failure &failure) {
    error = start + "cannot be read: " + makePrintable(failure.code().message());
  }
  return std::nullopt;
}
