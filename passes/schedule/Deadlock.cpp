//===- Deadlock.cpp - find communication deadlocks ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Deadlock.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace llvm;

namespace gridloom {
namespace {

using Kind = StageTrace::Kind;
using Item = StageTrace::Item;

/// A stream, as the indices of its participant and of the stream.
using Place = std::pair<unsigned, unsigned>;

class Simulation {
public:
  explicit Simulation(ArrayRef<StageTrace> stages) : stages(stages), recorded(stages.size()) {
    for (auto [i, stage] : enumerate(stages)) {
      indices[stage.stage] = i;
      heads.emplace_back(stage.streams.size(), 0);
    }
  }

  std::optional<std::string> run() {
    while (step())
      ;
    for (unsigned i = 0; i < stages.size(); ++i)
      for (unsigned j = 0; j < stages[i].streams.size(); ++j)
        if (getHead({i, j}))
          return describe({i, j});
    return std::nullopt;
  }

private:
  const std::vector<Item> &getItems(Place place) const {
    return stages[place.first].streams[place.second].items;
  }

  const Item *getHead(Place place) const {
    const std::vector<Item> &items = getItems(place);
    size_t head = heads[place.first][place.second];
    return head < items.size() ? &items[head] : nullptr;
  }

  /// The other participants that an item needs.
  SmallVector<int64_t> getOthers(unsigned stage, const Item &item) const {
    if (item.kind == Kind::Send || item.kind == Kind::Recv)
      return {item.peer};
    SmallVector<int64_t> others(item.members.begin(), item.members.end());
    llvm::erase(others, stages[stage].stage);
    return others;
  }

  /// True when `other`, of participant `number`, is the other end of `item`, of `stage`.
  bool matches(unsigned stage, const Item &item, int64_t number, const Item &other) const {
    if (other.channel != item.channel)
      return false;
    if (item.kind == Kind::Collective)
      return other.kind == Kind::Collective && other.communicator == item.communicator &&
             other.members == item.members;
    return other.kind == (item.kind == Kind::Send ? Kind::Recv : Kind::Send) &&
           other.peer == stages[stage].stage && item.peer == number;
  }

  /// The stream of participant `number` that has the other end of `item` at its head or, with
  /// `anywhere`, later.
  std::optional<Place> findPartner(unsigned stage, const Item &item, int64_t number,
                                   bool anywhere) const {
    auto peer = indices.find(number);
    if (peer == indices.end())
      return std::nullopt;
    for (unsigned j = 0; j < stages[peer->second].streams.size(); ++j) {
      Place place{peer->second, j};
      ArrayRef<Item> rest = ArrayRef(getItems(place)).drop_front(heads[place.first][place.second]);
      for (const Item &other : anywhere ? rest : rest.take_front(1))
        if (matches(stage, item, number, other))
          return place;
    }
    return std::nullopt;
  }

  /// Advances the stream `place` and those of its item's partners if the item can complete.
  bool advance(Place place) {
    const Item *item = getHead(place);
    if (!item)
      return false;
    SmallVector<Place> partners;
    if (item->kind == Kind::Record) {
      recorded[place.first].insert(item->event);
    } else if (item->kind == Kind::Wait) {
      if (!recorded[place.first].count(item->event))
        return false;
    } else {
      for (int64_t other : getOthers(place.first, *item)) {
        std::optional<Place> partner = findPartner(place.first, *item, other, /*anywhere=*/false);
        if (!partner)
          return false;
        partners.push_back(*partner);
      }
    }
    for (Place partner : partners)
      ++heads[partner.first][partner.second];
    ++heads[place.first][place.second];
    return true;
  }

  /// Moves every stream as far as it goes; false if nothing moved.
  bool step() {
    bool moved = false;
    for (unsigned i = 0; i < stages.size(); ++i)
      for (unsigned j = 0; j < stages[i].streams.size(); ++j)
        while (advance({i, j}))
          moved = true;
    return moved;
  }

  /// The stream that has what the head of `place` waits for, if there is one.
  std::optional<Place> getBlocker(Place place) const {
    const Item &item = *getHead(place);
    if (item.kind != Kind::Wait) {
      for (int64_t other : getOthers(place.first, item))
        if (!findPartner(place.first, item, other, /*anywhere=*/false))
          return findPartner(place.first, item, other, /*anywhere=*/true);
      return std::nullopt;
    }
    for (unsigned j = 0; j < stages[place.first].streams.size(); ++j)
      for (const Item &other :
           ArrayRef(getItems({place.first, j})).drop_front(heads[place.first][j]))
        if (other.kind == Kind::Record && other.event == item.event)
          return Place{place.first, j};
    return std::nullopt;
  }

  void print(raw_ostream &stream, Place place) const {
    const Item &item = *getHead(place);
    const StageTrace &stage = stages[place.first];
    stream << stage.noun << " " << stage.stage << " '" << stage.streams[place.second].name
           << "' iteration " << item.iteration;
    if (item.kind == Kind::Wait)
      stream << " awaits an event";
    else if (item.kind == Kind::Collective)
      stream << " joins call " << item.channel << " of communicator '" << item.communicator << "'";
    else
      stream << (item.kind == Kind::Send ? " sends channel " : " receives channel ") << item.channel
             << (item.kind == Kind::Send ? " to " : " from ") << stage.noun << " " << item.peer;
    if (!item.node.empty())
      stream << " (node '" << item.node << "')";
  }

  /// Follows who waits for whom until a stream repeats, or nobody has what is awaited.
  std::string describe(Place place) const {
    std::string text;
    raw_string_ostream stream(text);
    SmallSetVector<Place, 8> path;
    while (path.insert(place)) {
      std::optional<Place> blocker = getBlocker(place);
      if (!blocker) {
        print(stream, place);
        stream << ", which nobody answers";
        return text;
      }
      place = *blocker;
    }
    stream << "a cycle: ";
    for (Place at : path.getArrayRef().drop_front(llvm::find(path, place) - path.begin())) {
      print(stream, at);
      stream << " waits for ";
    }
    print(stream, place);
    return text;
  }

  ArrayRef<StageTrace> stages;
  DenseMap<int64_t, unsigned> indices; // by number
  std::vector<std::vector<size_t>> heads;
  std::vector<std::set<int64_t>> recorded; // events, per participant
};

} // namespace

std::optional<std::string> findDeadlock(ArrayRef<StageTrace> stages) {
  return Simulation(stages).run();
}

} // namespace gridloom
