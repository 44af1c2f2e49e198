//===- ClusterWriter.cpp - clusters to files --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/ClusterWriter.h"

#include <nlohmann/json.hpp>

using namespace gridloom::cluster;
using nlohmann::ordered_json;

namespace {

/// Consecutive devices that are described together.
struct Entry {
  uint32_t first, count, kind;
  int64_t cores; ///< 0: they share none

  bool isGroup() const { return count > 1; }
};

class Writer {
public:
  explicit Writer(const Cluster &cluster) : cluster(cluster) { findEntries(); }
  ordered_json write() const;

private:
  void findEntries();
  std::string nameEntry(size_t number) const { return "d" + std::to_string(number); }
  std::string nameNode(uint32_t node) const;
  ordered_json describeDevices() const;
  ordered_json describeLinks() const;
  size_t countGroupLinks(size_t first) const;
  ordered_json describeLink(const Link &link, const std::string &from, const std::string &to) const;

  const Cluster &cluster;
  std::vector<Entry> entries;
  std::vector<uint32_t> entryOf; ///< by device
};

} // namespace

//===----------------------------------------------------------------------===//
// Kinds
//===----------------------------------------------------------------------===//

static ordered_json describeCurve(const EfficiencyCurve &curve) {
  ordered_json points = ordered_json::array();
  for (auto [size, share] : curve.points)
    points.push_back({size, share});
  return points;
}

static ordered_json describeKind(const DeviceKind &kind) {
  ordered_json object = {{"name", kind.name}};
  if (!kind.target.empty())
    object["target"] = kind.target;
  if (kind.memoryBytes)
    object["memory_bytes"] = kind.memoryBytes;
  for (const NumberField &field : getNumberFields())
    if (!field.mayBeAbsent || kind.*field.member != 0)
      object[field.name] = kind.*field.member;
  ordered_json rates = ordered_json::object(), curves = ordered_json::object();
  for (size_t work = 0; work < kClassNames.size(); ++work) {
    ordered_json ofClass = ordered_json::object();
    for (size_t type = 0; type < kTypeNames.size(); ++type)
      if (double rate = kind.flopsPerSecond[work][type])
        ofClass[kTypeNames[type]] = rate;
    if (!ofClass.empty())
      rates[kClassNames[work]] = ofClass;
    if (!kind.efficiency[work].points.empty())
      curves[kClassNames[work]] = describeCurve(kind.efficiency[work]);
  }
  if (!kind.memoryEfficiency.points.empty())
    curves["memory"] = describeCurve(kind.memoryEfficiency);
  object["flops_per_second"] = rates;
  if (!curves.empty())
    object["efficiency"] = curves;
  return object;
}

//===----------------------------------------------------------------------===//
// Devices and links
//===----------------------------------------------------------------------===//

void Writer::findEntries() {
  auto nextShared = cluster.sharedCores.begin();
  auto count = static_cast<uint32_t>(cluster.devices.size());
  for (uint32_t device = 0; device < count;) {
    uint32_t end = count;
    int64_t cores = 0;
    if (nextShared != cluster.sharedCores.end()) {
      bool isShared = nextShared->first == device;
      end = isShared ? device + nextShared->count : nextShared->first;
      cores = isShared ? nextShared->cores : 0;
      nextShared += isShared;
    }
    uint32_t kind = cluster.devices[device], past = device;
    while (past < end && cluster.devices[past] == kind)
      ++past;
    entryOf.insert(entryOf.end(), past - device, static_cast<uint32_t>(entries.size()));
    entries.push_back({device, past - device, kind, cores});
    device = past;
  }
}

std::string Writer::nameNode(uint32_t node) const {
  if (node >= cluster.devices.size())
    return "s" + std::to_string(node - cluster.devices.size());
  const Entry &entry = entries[entryOf[node]];
  std::string name = nameEntry(entryOf[node]);
  return entry.isGroup() ? name + "/" + std::to_string(node - entry.first) : name;
}

ordered_json Writer::describeDevices() const {
  ordered_json list = ordered_json::array();
  for (size_t number = 0; number < entries.size(); ++number) {
    const Entry &entry = entries[number];
    ordered_json object = {{"name", nameEntry(number)}, {"kind", cluster.kinds[entry.kind].name}};
    if (entry.isGroup())
      object["count"] = entry.count;
    if (entry.cores)
      object["cores"] = entry.cores;
    list.push_back(object);
  }
  return list;
}

/// The number of links from `first` on that connect all devices of an entry with one node alike, so
/// that one line describes them; 0 if the link stands alone.
size_t Writer::countGroupLinks(size_t first) const {
  const Link &link = cluster.links[first];
  if (link.from >= cluster.devices.size())
    return 0;
  const Entry &entry = entries[entryOf[link.from]];
  if (!entry.isGroup() || link.from != entry.first || first + entry.count > cluster.links.size())
    return 0;
  for (uint32_t i = 0; i < entry.count; ++i) {
    Link expected = link;
    expected.from += i;
    if (cluster.links[first + i] != expected || expected.from == expected.to)
      return 0;
  }
  return entry.count;
}

ordered_json Writer::describeLink(const Link &link, const std::string &from,
                                  const std::string &to) const {
  ordered_json object = {{"ends", {from, to}},
                         {"latency_seconds", link.latencySeconds},
                         {"bytes_per_second", link.bytesPerSecond[0]}};
  if (link.bytesPerSecond[1] != link.bytesPerSecond[0])
    object["bytes_per_second_back"] = link.bytesPerSecond[1];
  return object;
}

ordered_json Writer::describeLinks() const {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < cluster.links.size();) {
    const Link &link = cluster.links[i];
    size_t count = countGroupLinks(i);
    list.push_back(describeLink(link, count ? nameEntry(entryOf[link.from]) : nameNode(link.from),
                                nameNode(link.to)));
    i += std::max<size_t>(count, 1);
  }
  return list;
}

ordered_json Writer::write() const {
  ordered_json kinds = ordered_json::array(), switches = ordered_json::array();
  for (const DeviceKind &kind : cluster.kinds)
    kinds.push_back(describeKind(kind));
  for (uint32_t i = 0; i < cluster.numSwitches; ++i)
    switches.push_back("s" + std::to_string(i));
  ordered_json root = ordered_json::object();
  if (!cluster.name.empty())
    root["name"] = cluster.name;
  root["device_kinds"] = kinds;
  root["devices"] = describeDevices();
  root["switches"] = switches;
  root["links"] = describeLinks();
  return root;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// Prints values that fit on one line as one line.
static void print(const ordered_json &value, size_t indent, std::string &text) {
  constexpr size_t columns = 100;
  std::string line = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  if (!value.is_structured() || indent + line.size() <= columns) {
    text += line;
    return;
  }
  bool isFirst = true;
  text += value.is_object() ? '{' : '[';
  for (const auto &[key, element] : value.items()) {
    text += (isFirst ? "\n" : ",\n") + std::string(indent + 2, ' ');
    if (value.is_object())
      text += ordered_json(key).dump() + ": ";
    print(element, indent + 2, text);
    isFirst = false;
  }
  text += "\n" + std::string(indent, ' ') + (value.is_object() ? '}' : ']');
}

std::string gridloom::cluster::formatCluster(const Cluster &cluster) {
  std::string text;
  print(Writer(cluster).write(), 0, text);
  return text + "\n";
}
