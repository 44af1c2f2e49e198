//===- PageTables.cpp - tensors and collectives of a page -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/page/PageData.h"

#include "runtime/cli/ReportFile.h"
#include "runtime/cli/ShardingText.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/plan.pb.h"
#include "support/CostSheet.h"
#include "support/Layers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

using namespace gridloom;
using namespace gridloom::rt;

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

static Json packColumn(const std::vector<Json> &rows, const std::string &key) {
  Json values = Json::array();
  for (const Json &row : rows)
    values.push_back(row.at(key));
  std::map<std::string, size_t> numbers;
  Json texts = Json::array(), at = Json::array();
  for (const Json &value : values) {
    if (!value.is_string())
      return values;
    auto [found, isNew] = numbers.emplace(value.get<std::string>(), numbers.size());
    if (isNew)
      texts.push_back(value);
    at.push_back(found->second);
  }
  if (2 * texts.size() > values.size())
    return values;
  return {{"texts", std::move(texts)}, {"at", std::move(at)}};
}

Json gridloom::rt::packRows(const std::vector<Json> &rows) {
  Json columns = Json::object();
  if (!rows.empty())
    for (const auto &[key, value] : rows.front().items())
      columns[key] = packColumn(rows, key);
  return {{"rows", rows.size()}, {"columns", std::move(columns)}};
}

/// Keeps the rows that are largest by `key`, in their order.
static void limitRows(std::vector<Json> &rows, const char *key, const std::string &what,
                      std::vector<std::string> &notes) {
  if (rows.size() <= kMostPageRows)
    return;
  std::vector<size_t> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return getNumber(rows[a], key) > getNumber(rows[b], key);
  });
  order.resize(kMostPageRows);
  std::sort(order.begin(), order.end());
  notes.push_back(std::to_string(rows.size() - order.size()) + " of " +
                  std::to_string(rows.size()) + " " + what + " with the smallest " + key +
                  " are left out.");
  std::vector<Json> kept;
  for (size_t i : order)
    kept.push_back(std::move(rows[i]));
  rows = std::move(kept);
}

/// "0-11,13"
static std::string formatRanges(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] <= numbers[last] + 1)
      ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (numbers[last] > numbers[i])
      text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

static std::string replaceAll(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// Merges rows that differ only in a layer's number, with the numbers in braces: "h.{0-11}.w".
/// Nodes that are computed together contain the number several times, and a reason may name the
/// layer.
static std::vector<Json> foldRows(const std::vector<Json> &rows) {
  struct Fold {
    Json row;
    std::string layer, before;
    std::vector<int64_t> numbers;
  };
  std::vector<Fold> folds;
  std::map<std::string, size_t> known;
  for (const Json &row : rows) {
    std::string name = getText(row, "name"), layer, before;
    int64_t number = -1;
    Json rest = row;
    if (std::vector<LayerNumber> found = findLayers(name, "/._"); !found.empty()) {
      number = found.front().value;
      layer = name.substr(0, found.front().end);
      before = name.substr(0, found.front().begin);
      for (const char *key : {"name", "decided_by"})
        rest[key] = replaceAll(getText(row, key), layer, before + "\n");
    }
    auto [found, isNew] =
        known.emplace(rest.dump(-1, ' ', false, Json::error_handler_t::replace), folds.size());
    if (isNew)
      folds.push_back({row, layer, before, {}});
    folds[found->second].numbers.push_back(number);
  }
  std::vector<Json> folded;
  for (Fold &fold : folds) {
    std::set<int64_t> distinct(fold.numbers.begin(), fold.numbers.end());
    if (distinct.size() > 1)
      fold.row["name"] = replaceAll(getText(fold.row, "name"), fold.layer,
                                    fold.before + "{" + formatRanges(fold.numbers) + "}");
    fold.row["count"] = fold.numbers.size();
    folded.push_back(std::move(fold.row));
  }
  return folded;
}

namespace {
/// "tensor<4x6xf32>", parsed.
struct TensorType {
  std::string element;
  std::vector<int64_t> dims;
};
} // namespace

/// Nothing for other types or unknown dimensions.
static std::optional<TensorType> parseType(const std::string &text) {
  size_t close = text.rfind('>');
  if (!text.starts_with("tensor<") || close == std::string::npos)
    return std::nullopt;
  TensorType type{text.substr(7, close - 7), {}};
  for (size_t x; isdigit(static_cast<unsigned char>(type.element[0])) &&
                 (x = type.element.find('x')) != std::string::npos && x < 19;) {
    type.dims.push_back(std::stoll(type.element.substr(0, x)));
    type.element.erase(0, x + 1);
  }
  return type.element.starts_with('?') ? std::nullopt : std::optional(type);
}

/// The type of MLIR's name, "ui8" or "f8E5M2"; nothing for other names.
static std::optional<DataType> findElementType(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return char(tolower(c)); });
  if (name.starts_with("ui"))
    name.erase(1, 1);
  for (int number = 1; isDataType(number); ++number)
    if (name == nameOf(DataType(number)))
      return DataType(number);
  return name == "i1" ? std::optional(DataType::Bool) : std::nullopt;
}

/// The number of elements of one device's part. Ignores axes that the mesh lacks: they split in
/// time. In double, since a report may name an axis any number of times, which would overflow
/// integers.
static double countLocal(const Mesh &mesh, const TensorType &type, const std::string &sharding) {
  double count = 1;
  std::istringstream parts(sharding.substr(std::min<size_t>(1, sharding.size())));
  for (int64_t size : type.dims) {
    std::string part;
    std::getline(parts, part, ',');
    double ways = 1, granule = 1;
    if (size_t star = part.find('*'); star != std::string::npos)
      granule = double(std::max(1L, std::strtol(part.c_str() + star + 1, nullptr, 10)));
    std::istringstream names(part.substr(0, part.find_first_of("*]")));
    for (std::string axis; std::getline(names, axis, '.');)
      for (const Mesh::Axis &known : mesh.getAxes())
        if (known.name == axis.substr(axis.find_first_not_of(' ') == 1 ? 1 : 0))
          ways = std::min(1e18, ways * double(known.size));
    count *= std::ceil(double(size) / (ways * granule)) * granule;
  }
  return count;
}

namespace {
/// The table of tensors, without duplicates.
class TensorRows {
public:
  explicit TensorRows(const Plan &plan) : plan(plan) {}
  void addWeights(const Json &report);
  void addValue(const Json &value);
  const std::vector<Json> &get() const { return rows; }

private:
  struct Tensor {
    std::string name, kind, type, sharding;
    Json stage, deviceBytes; ///< null if unknown
    double bytes = 0;
    std::string reason;
  };
  void add(Tensor tensor);

  const Plan &plan;
  std::vector<Json> rows;
  std::set<std::string> seen;
};
} // namespace

void TensorRows::add(Tensor tensor) {
  std::string key =
      tensor.name + "\n" + tensor.kind + tensor.type + tensor.sharding + tensor.stage.dump();
  if (seen.insert(key).second)
    rows.push_back({{"name", tensor.name},
                    {"kind", tensor.kind},
                    {"type", tensor.type},
                    {"sharding", tensor.sharding},
                    {"stage", std::move(tensor.stage)},
                    {"bytes", tensor.bytes},
                    {"device_bytes", std::move(tensor.deviceBytes)},
                    {"decided_by", tensor.reason}});
}

void TensorRows::addWeights(const Json &report) {
  std::map<std::string, std::string> reasons;
  for (const Json &value : getList(report, "values"))
    if (getText(value, "op") == "loom.get_weight")
      reasons[getText(value, "name")] = getText(value, "origin");
  for (int number = 0; number < plan.getNumStages(); ++number)
    for (const schema::Weight &weight : plan.getStage(number).weights()) {
      const WeightInfo *info = plan.findWeight(weight.name());
      std::vector<int64_t> shape(weight.shape().begin(), weight.shape().end());
      std::string type = std::string(nameOf(DataType(int(weight.type())))) + " " +
                         formatShape(info ? info->shape : shape);
      add({weight.name(), info ? "weight" : "derived weight", std::move(type),
           formatSharding(weight.sharding()), number, weight.bytes(),
           double(info ? info->bytes : weight.bytes()), reasons[weight.name()]});
    }
}

void TensorRows::addValue(const Json &value) {
  std::string type = getText(value, "type"), op = getText(value, "op");
  std::string sharding = shortenSharding(getText(value, "sharding"));
  double bytes = 0;
  Json local;
  std::optional<TensorType> tensor = parseType(type);
  std::optional<DataType> element = tensor ? findElementType(tensor->element) : std::nullopt;
  if (element) {
    bytes = double(sizeOf(*element));
    for (int64_t size : tensor->dims)
      bytes *= double(size);
    local = double(sizeOf(*element)) * countLocal(plan.getMesh(), *tensor, sharding);
    type = std::string(nameOf(*element)) + " " + formatShape(tensor->dims);
  }
  add({getText(value, "name"), op.starts_with("loom.") ? op.substr(5) : op, std::move(type),
       std::move(sharding), nullptr, std::move(local), bytes, getText(value, "origin")});
}

Json gridloom::rt::makeTensors(const Plan &plan, const Json &report,
                               std::vector<std::string> &notes) {
  TensorRows rows(plan);
  rows.addWeights(report);
  for (const Json &value : getList(report, "values"))
    if (getText(value, "op") != "loom.get_weight")
      rows.addValue(value);
  std::vector<Json> folded = foldRows(rows.get());
  limitRows(folded, "bytes", "tensors", notes);
  return packRows(folded);
}

/// Adds the report's times of a collective that runs so often, in microseconds.
static void addReported(Json &row, const Json &reported, int64_t times) {
  double estimate = getNumber(reported, "estimate_us");
  const Json &simulated = getField(reported, "time_us"),
             &exposed = getField(reported, "exposed_us");
  row["us"] = estimate;
  row["us_in_all"] = simulated.is_number() ? simulated : Json(estimate * double(times));
  if (exposed.is_number())
    row["exposed_us"] = exposed;
}

Json gridloom::rt::makeCollectiveRows(const Plan &plan, const Json &report,
                                      std::vector<std::string> &notes) {
  std::vector<Json> rows;
  std::map<int64_t, const Json *> known;
  for (const Json &collective : getList(report, "collectives"))
    known[getInteger(collective, "id")] = &collective;
  int64_t id = 0;
  for (const PlannedCollective &c : findCountedCollectives(plan, report)) {
    std::string axes;
    for (const std::string &axis : c.axes)
      axes += (axes.empty() ? "" : ".") + axis;
    Json row{{"id", id},
             {"kind", c.kind},
             {"over", axes},
             {"ranks", c.group},
             {"stage", c.stage},
             {"program", nameProgram(c.entry, c.dims)},
             {"sequence", c.sequence},
             {"bytes", c.bytes},
             {"times", c.times},
             {"us", nullptr},
             {"us_in_all", nullptr},
             {"exposed_us", nullptr},
             {"onnx_node", c.origin},
             {"because", c.because}};
    auto reported = known.find(id++);
    if (reported != known.end() && getText(*reported->second, "kind") == c.kind)
      addReported(row, *reported->second, c.times);
    rows.push_back(std::move(row));
  }
  limitRows(rows, "us_in_all", "collectives", notes);
  return packRows(rows);
}
