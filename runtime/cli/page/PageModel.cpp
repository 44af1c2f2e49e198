//===- PageModel.cpp - tree of a model's nodes by scope -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The nodes of a model form a tree: "/layers.3/attn/MatMul" is in scope "attn" of scope "layers.3".
// Scopes that differ only in a number, such as layers, are merged into one with a list of numbers.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/ShardingText.h"
#include "runtime/cli/page/PageData.h"
#include "support/Layers.h"

#include <algorithm>
#include <memory>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

/// How many nodes and scopes are drawn, outer ones first; the others only count in sums.
static constexpr size_t kMostDrawn = 10'000;

namespace {

/// An operation of a node after the shard phase.
struct Op {
  std::string name, type, sharding, reason;
  bool operator<(const Op &other) const {
    return std::tie(name, type, sharding, reason) <
           std::tie(other.name, other.type, other.sharding, other.reason);
  }
};

/// Number of operations and simulated time for one set of axes.
struct Share {
  int64_t nodes = 0;
  double ms = 0;
};

struct Scope {
  std::string name, path; ///< path: a node's full name
  std::vector<std::unique_ptr<Scope>> children;
  std::map<std::string, Scope *> byName;
  std::vector<Op> ops;                      ///< of a node
  std::vector<Json> collectives;            ///< of a node: their ids
  std::vector<std::string> collectiveTexts; ///< their kinds and axes
  double ms = 0;                            ///< of a node
  std::map<std::string, Share> shares;      ///< by axes
  std::vector<int64_t> numbers;             ///< of the scopes merged into this one
  size_t signature = 0;
  bool isDrawn = false;
  bool isNode() const { return !ops.empty(); }
  size_t countFolded() const { return std::max<size_t>(1, numbers.size()); }
};

class ModelTree {
public:
  void add(const Json &value);
  void addTime(const std::string &nodes, double ms);
  void addCollective(const Json &collective);
  Json finish(std::vector<std::string> &notes);

private:
  Scope *find(const std::string &node);
  void sign(Scope &scope);
  void fold(Scope &scope);
  void sum(Scope &scope);
  void chooseDrawn();
  Json pack(const Scope &scope);
  size_t intern(const std::string &text);

  Scope root;
  std::map<std::string, Scope *> nodes;
  std::map<std::string, size_t> texts;
  std::map<std::vector<std::string>, size_t> signatures;
  Json textList = Json::array();
  size_t drawn = 0, left = 0;
  double elsewhere = 0;
};

} // namespace

/// The first node of "/a/MatMul + /a/Add", which are computed together.
static std::string getFirstNode(const std::string &nodes) {
  return nodes.substr(0, nodes.find(" + "));
}

static std::vector<std::string> splitPath(const std::string &name) {
  constexpr size_t deepest = 16; // scope depth that people may want to open
  std::vector<std::string> parts;
  std::string part;
  for (char c : name + "/") {
    if (c != '/' || parts.size() == deepest) {
      part += c;
      continue;
    }
    if (!part.empty())
      parts.push_back(part);
    part.clear();
  }
  if (!part.empty())
    parts.push_back(part);
  return parts;
}

/// Splits "h.12" into "h.#" and 12; -1 if there is no number. In "features.3.1" the last number
/// counts: the other is the scope's.
static std::pair<std::string, int64_t> cutNumber(const std::string &name) {
  std::string inScope = "/" + name; // "12" in "/blocks/12/Add" is a layer number too
  std::vector<LayerNumber> found = findLayers(inScope, "/._");
  if (found.empty())
    return {name, -1};
  auto [begin, end, value] = found.back();
  return {inScope.substr(1, begin - 1) + "#" + inScope.substr(end), value};
}

Scope *ModelTree::find(const std::string &node) {
  auto known = nodes.find(getFirstNode(node));
  return known == nodes.end() ? nullptr : known->second;
}

void ModelTree::add(const Json &value) {
  std::string op = getText(value, "op"), whole = getText(value, "name");
  if (op.empty() || op == "input" || op == "loom.get_weight" || op == "loom.constant")
    return;
  std::string node = getFirstNode(whole);
  Scope *&leaf = nodes[node];
  if (!leaf) {
    Scope *scope = &root;
    std::vector<std::string> parts = splitPath(node);
    if (parts.empty())
      parts.push_back(node.empty() ? "unnamed" : node);
    for (size_t i = 0; i < parts.size(); ++i) {
      bool isNode = i + 1 == parts.size();
      // A node and a scope may have the same name.
      Scope *&child = scope->byName[isNode ? parts[i] + "\n" : parts[i]];
      if (!child) {
        child = scope->children.emplace_back(std::make_unique<Scope>()).get();
        child->name = parts[i];
      }
      scope = child;
    }
    scope->path = whole;
    leaf = scope;
  }
  Op added{op.starts_with("loom.") ? op.substr(5) : op, getText(value, "type"),
           shortenSharding(getText(value, "sharding")), getText(value, "origin")};
  if (std::none_of(leaf->ops.begin(), leaf->ops.end(),
                   [&](const Op &known) { return !(known < added) && !(added < known); }))
    leaf->ops.push_back(std::move(added));
}

void ModelTree::addTime(const std::string &nodes, double ms) {
  if (Scope *leaf = find(nodes))
    leaf->ms += ms;
  else
    elsewhere += ms;
}

void ModelTree::addCollective(const Json &collective) {
  Scope *leaf = find(getText(collective, "origin"));
  if (!leaf)
    return;
  leaf->collectives.push_back(getInteger(collective, "id"));
  leaf->collectiveTexts.push_back(getText(collective, "kind"));
  leaf->collectiveTexts.push_back(getList(collective, "axes").dump());
}

/// Gives scopes with equal contents equal signatures, whatever the numbers in their names. Texts of
/// a report may contain anything, so they are kept as a list with counts, not joined.
void ModelTree::sign(Scope &scope) {
  std::vector<std::string> parts{cutNumber(scope.name).first,
                                 std::to_string(scope.collectiveTexts.size()),
                                 std::to_string(scope.ops.size())};
  parts.insert(parts.end(), scope.collectiveTexts.begin(), scope.collectiveTexts.end());
  for (const Op &op : scope.ops)
    parts.insert(parts.end(), {op.name, op.type, op.sharding});
  for (const std::unique_ptr<Scope> &child : scope.children) {
    sign(*child);
    parts.push_back(std::to_string(child->signature));
  }
  scope.signature = signatures.emplace(std::move(parts), signatures.size()).first->second;
}

static void addTimes(Scope &to, const Scope &from) {
  to.ms += from.ms;
  to.collectives.insert(to.collectives.end(), from.collectives.begin(), from.collectives.end());
  for (size_t i = 0; i < std::min(to.children.size(), from.children.size()); ++i)
    addTimes(*to.children[i], *from.children[i]);
}

/// Merges equal scopes, but not nodes, and only without a scope of another pattern between them:
/// "ln_1" and "ln_2" of a layer stay separate. Layers of several kinds may alternate.
void ModelTree::fold(Scope &scope) {
  std::map<size_t, Scope *> first;
  std::string kind;
  std::vector<std::unique_ptr<Scope>> left;
  for (std::unique_ptr<Scope> &child : scope.children) {
    auto [pattern, number] = cutNumber(child->name);
    if (pattern != kind || child->isNode())
      first.clear();
    kind = pattern;
    if (!child->isNode() && number >= 0) {
      if (auto [found, isNew] = first.emplace(child->signature, child.get()); !isNew) {
        found->second->numbers.push_back(number);
        addTimes(*found->second, *child);
        continue;
      }
      child->numbers = {number};
    }
    left.push_back(std::move(child));
  }
  scope.children = std::move(left);
  for (std::unique_ptr<Scope> &child : scope.children)
    fold(*child);
}

/// Sums nodes and times by axes: of merged scopes, the nodes of one and the times of all.
void ModelTree::sum(Scope &scope) {
  if (scope.isNode())
    scope.shares[listAxes(scope.ops.back().sharding)] = {1, scope.ms};
  for (std::unique_ptr<Scope> &child : scope.children) {
    sum(*child);
    for (const auto &[axes, share] : child->shares) {
      Share &all = scope.shares[axes];
      all.nodes += share.nodes * int64_t(child->countFolded());
      all.ms += share.ms;
    }
  }
}

void ModelTree::chooseDrawn() {
  std::vector<Scope *> scopes{&root};
  for (size_t i = 0; i < scopes.size() && i < kMostDrawn; ++i) {
    scopes[i]->isDrawn = true;
    for (const std::unique_ptr<Scope> &child : scopes[i]->children)
      scopes.push_back(child.get());
  }
}

size_t ModelTree::intern(const std::string &text) {
  auto [found, isNew] = texts.emplace(text, texts.size());
  if (isNew)
    textList.push_back(text);
  return found->second;
}

Json ModelTree::pack(const Scope &scope) {
  Json shares = Json::array();
  for (const auto &[axes, share] : scope.shares)
    shares.push_back({intern(axes), share.nodes, share.ms});
  Json packed{{"name", scope.name}, {"shares", std::move(shares)}};
  if (scope.numbers.size() > 1)
    packed["numbers"] = scope.numbers;
  if (scope.isNode()) {
    Json ops = Json::array();
    for (const Op &op : scope.ops)
      ops.push_back({intern(op.name), intern(op.type), intern(op.sharding), intern(op.reason)});
    packed["path"] = scope.path;
    packed["ops"] = std::move(ops);
    if (!scope.collectives.empty())
      packed["collectives"] = scope.collectives;
  }
  int64_t nodesLeft = 0;
  for (const std::unique_ptr<Scope> &child : scope.children) {
    if (child->isDrawn)
      packed["children"].push_back(pack(*child));
    else
      for (const auto &[axes, share] : child->shares)
        nodesLeft += share.nodes * int64_t(child->countFolded());
  }
  if (nodesLeft)
    packed["left"] = nodesLeft;
  drawn += scope.isNode();
  left += size_t(nodesLeft);
  return packed;
}

Json ModelTree::finish(std::vector<std::string> &notes) {
  sign(root);
  fold(root);
  sum(root);
  chooseDrawn();
  root.name = "model";
  Json tree = pack(root);
  if (left)
    notes.push_back("Of the model's nodes " + std::to_string(drawn) + " are drawn, " +
                    std::to_string(left) + " are in the sums of their scopes alone.");
  return {{"tree", std::move(tree)}, {"texts", std::move(textList)}, {"other_ms", elsewhere}};
}

Json gridloom::rt::makeModelTree(const Json &report, const Json &timeline,
                                 std::vector<std::string> &notes) {
  ModelTree tree;
  for (const Json &value : getList(report, "values"))
    tree.add(value);
  for (const Json &collective : getList(report, "collectives"))
    tree.addCollective(collective);
  for (const Json &program : getList(timeline, "programs"))
    for (const Json &stage : getList(program, "stages"))
      for (const Json &step : getList(stage, "steps"))
        tree.addTime(step[1].get<std::string>(), step[5].get<double>());
  return tree.finish(notes);
}
