//===- PageTables.cpp - tensors and collectives of a page -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/page/PageData.h"

#include "runtime/cli/Job.h"
#include "runtime/core/Error.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/Shard.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

using namespace gridloom;
using namespace gridloom::rt;

//===----------------------------------------------------------------------===//
// Fields of files
//===----------------------------------------------------------------------===//

Json gridloom::rt::readPlanFile(const Plan &plan, const char *name) {
  std::filesystem::path path = plan.getFolder() / name;
  std::ifstream file(path);
  if (!file)
    return nullptr;
  Json content = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object())
    throw Error(ErrorCode::InvalidPlan,
                path.string() + " is not a JSON object; compile the plan again");
  return content;
}

const Json &gridloom::rt::getField(const Json &object, const char *key) {
  static const Json none;
  auto found = object.find(key); // the end for what is no object
  return found == object.end() ? none : *found;
}

std::string gridloom::rt::getText(const Json &object, const char *key) {
  const Json &field = getField(object, key);
  return field.is_string() ? field.get<std::string>() : "";
}

double gridloom::rt::getNumber(const Json &object, const char *key) {
  const Json &field = getField(object, key);
  return field.is_number() ? field.get<double>() : 0;
}

const Json &gridloom::rt::getList(const Json &object, const char *key) {
  static const Json none = Json::array();
  const Json &field = getField(object, key);
  return field.is_array() ? field : none;
}

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

/// The axis names between quotes, joined.
static std::string joinQuoted(const std::string &text, const char *separator) {
  std::string joined;
  for (size_t from = text.find('"'); from != std::string::npos;) {
    size_t to = text.find('"', from + 1);
    if (to == std::string::npos)
      break;
    joined += (joined.empty() ? "" : separator) + text.substr(from + 1, to - from - 1);
    from = text.find('"', to + 1);
  }
  return joined;
}

std::string gridloom::rt::shortenSharding(const std::string &text) {
  size_t at = text.find('['), end = text.rfind(']');
  if (at == std::string::npos || end == std::string::npos)
    return text;
  std::string result = "[";
  while (true) {
    size_t open = text.find('{', at), close = text.find('}', at);
    if (open >= end || close >= end)
      break;
    std::string axes = joinQuoted(text.substr(open, close - open), ".");
    result += (result.size() > 1 ? ", " : "") + (axes.empty() ? "-" : axes);
    at = close + 1;
    if (text.compare(at, 3, " * ") == 0)
      result += "*" + text.substr(at + 3, text.find_first_of(",]", at) - at - 3);
  }
  result += "]";
  std::string unreduced = joinQuoted(text.substr(end), ".");
  return unreduced.empty() ? result : result + " + " + unreduced;
}

std::string gridloom::rt::listAxes(const std::string &sharding) {
  std::set<std::string> axes;
  std::string name, dims = sharding.substr(0, sharding.find(']'));
  bool isGranule = false;
  for (char c : dims + ",") {
    if (c != '[' && c != ',' && c != '.' && c != ' ' && c != '*') {
      if (!isGranule)
        name += c;
      continue;
    }
    isGranule = c == '*' || (isGranule && c != ',');
    if (!name.empty() && name != "-" && name != "micro")
      axes.insert(name);
    name.clear();
  }
  std::string joined;
  for (const std::string &axis : axes)
    joined += (joined.empty() ? "" : "+") + axis;
  return joined;
}

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

/// Leaves the rows that are largest by `key`, in their order.
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

/// "h.12.attn.weight": what stands before and behind its first number that is a whole part of the
/// name, and the number; -1 where there is none.
static std::tuple<std::string, int64_t, std::string> cutLayer(const std::string &name) {
  auto isEdge = [&](size_t at) {
    return at >= name.size() || name[at] == '.' || name[at] == '/' || name[at] == '_';
  };
  for (size_t from = 0; from < name.size(); ++from) {
    if (!isdigit(static_cast<unsigned char>(name[from])))
      continue;
    size_t to = from;
    while (to < name.size() && isdigit(static_cast<unsigned char>(name[to])))
      ++to;
    if (isEdge(to) && to - from < 10 && (from == 0 || isEdge(from - 1)))
      return {name.substr(0, from), std::stoll(name.substr(from, to - from)), name.substr(to)};
    from = to;
  }
  return {name, -1, ""};
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

/// Rows that differ in a layer's number alone become one, with the numbers in braces: "h.{0-11}.w".
/// Nodes that are computed together have the number several times, and a reason may name the layer.
static std::vector<Json> foldLayers(const std::vector<Json> &rows) {
  struct Fold {
    Json row;
    std::string layer, before;
    std::vector<int64_t> numbers;
  };
  std::vector<Fold> folds;
  std::map<std::string, size_t> known;
  for (const Json &row : rows) {
    auto [before, number, behind] = cutLayer(getText(row, "name"));
    std::string layer = before + std::to_string(number);
    Json rest = row;
    if (number >= 0)
      for (const char *key : {"name", "decided_by"})
        rest[key] = replaceAll(getText(row, key), layer, before + "\n");
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
/// "tensor<4x6xf32>", taken apart.
struct TensorType {
  std::string element;
  std::vector<int64_t> dims;
};
} // namespace

/// None of other types, and where a dimension is not known.
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

/// By MLIR's name, "ui8" or "f8E5M2"; none of other types.
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

/// The elements of one device's part. Axes of `sharding` that the mesh lacks cut in time.
static double countLocal(const Mesh &mesh, const TensorType &type, const std::string &sharding) {
  double count = 1;
  std::istringstream parts(sharding.substr(std::min<size_t>(1, sharding.size())));
  for (int64_t size : type.dims) {
    std::string part;
    std::getline(parts, part, ',');
    int64_t ways = 1, granule = 1;
    if (size_t star = part.find('*'); star != std::string::npos)
      granule = std::max(1L, std::strtol(part.c_str() + star + 1, nullptr, 10));
    std::istringstream names(part.substr(0, part.find_first_of("*]")));
    for (std::string axis; std::getline(names, axis, '.');)
      for (const Mesh::Axis &known : mesh.getAxes())
        if (known.name == axis.substr(axis.find_first_not_of(' ') == 1 ? 1 : 0))
          ways *= known.size;
    count *= double(getShardSize(size, ways, granule));
  }
  return count;
}

Json gridloom::rt::makeTensors(const Plan &plan, const Json &report,
                               std::vector<std::string> &notes) {
  std::vector<Json> rows;
  std::map<std::string, std::string> reasons;
  std::set<std::string> seen;
  auto add = [&](const std::string &name, const std::string &kind, const std::string &type,
                 const std::string &sharding, Json stage, double bytes, Json local,
                 const std::string &reason) {
    if (seen.insert(name + "\n" + kind + type + sharding + stage.dump()).second)
      rows.push_back({{"name", name},
                      {"kind", kind},
                      {"type", type},
                      {"sharding", sharding},
                      {"stage", std::move(stage)},
                      {"bytes", bytes},
                      {"device_bytes", std::move(local)},
                      {"decided_by", reason}});
  };
  for (const Json &value : getList(report, "values"))
    if (getText(value, "op") == "loom.get_weight")
      reasons[getText(value, "name")] = getText(value, "origin");
  for (int number = 0; number < plan.getNumStages(); ++number)
    for (const schema::Weight &weight : plan.getStage(number).weights()) {
      const WeightInfo *info = plan.findWeight(weight.name());
      std::vector<int64_t> shape(weight.shape().begin(), weight.shape().end());
      add(weight.name(), info ? "weight" : "derived weight",
          std::string(nameOf(DataType(int(weight.type())))) + " " +
              formatShape(info ? info->shape : shape),
          formatSharding(weight.sharding()), number, double(info ? info->bytes : weight.bytes()),
          weight.bytes(), reasons[weight.name()]);
    }
  for (const Json &value : getList(report, "values")) {
    std::string type = getText(value, "type"), op = getText(value, "op");
    std::string sharding = shortenSharding(getText(value, "sharding"));
    if (op == "loom.get_weight")
      continue;
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
    add(getText(value, "name"), op.starts_with("loom.") ? op.substr(5) : op, type, sharding,
        nullptr, bytes, std::move(local), getText(value, "origin"));
  }
  std::vector<Json> folded = foldLayers(rows);
  limitRows(folded, "bytes", "tensors", notes);
  return packRows(folded);
}

Json gridloom::rt::makeCollectiveRows(const Plan &plan, const Json &report,
                                      std::vector<std::string> &notes) {
  std::vector<Json> rows;
  std::map<int64_t, const Json *> known;
  for (const Json &collective : getList(report, "collectives"))
    known[int64_t(getNumber(collective, "id"))] = &collective;
  int64_t id = 0;
  for (const PlannedCollective &c : findCollectives(plan)) {
    std::string axes;
    for (const std::string &axis : c.axes)
      axes += (axes.empty() ? "" : ".") + axis;
    auto reported = known.find(id);
    Json each, all, exposed;
    if (reported != known.end() && getText(*reported->second, "kind") == c.kind) {
      double microseconds = getNumber(*reported->second, "estimate_us");
      each = microseconds;
      all = microseconds * double(c.times);
      if (getField(*reported->second, "exposed_us").is_number())
        exposed = getField(*reported->second, "exposed_us");
    }
    rows.push_back({{"id", id++},
                    {"kind", c.kind},
                    {"over", axes},
                    {"ranks", c.group},
                    {"stage", c.stage},
                    {"program", c.dims.empty() ? c.entry : c.entry + " " + c.dims},
                    {"sequence", c.sequence},
                    {"bytes", c.bytes},
                    {"times", c.times},
                    {"us", std::move(each)},
                    {"us_in_all", std::move(all)},
                    {"exposed_us", std::move(exposed)},
                    {"onnx_node", c.origin},
                    {"because", c.because}});
  }
  limitRows(rows, "us_in_all", "collectives", notes);
  return packRows(rows);
}
