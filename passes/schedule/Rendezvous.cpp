//===- Rendezvous.cpp - do the stages' transfers meet ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Rendezvous.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace llvm;

namespace gridloom {
namespace {

using Kind = StageTrace::Kind;
using Item = StageTrace::Item;

/// A stream of a stage, by index.
using Place = std::pair<unsigned, unsigned>;

class Simulation {
public:
  explicit Simulation(ArrayRef<StageTrace> stages) : stages(stages), recorded(stages.size()) {
    for (const StageTrace &stage : stages)
      heads.emplace_back(stage.streams.size(), 0);
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
  const Item *getHead(Place place) const {
    const std::vector<Item> &items = stages[place.first].streams[place.second].items;
    size_t head = heads[place.first][place.second];
    return head < items.size() ? &items[head] : nullptr;
  }

  std::optional<unsigned> findStage(int64_t number) const {
    for (unsigned i = 0; i < stages.size(); ++i)
      if (stages[i].stage == number)
        return i;
    return std::nullopt;
  }

  static bool matches(const Item &item, const Item &other, int64_t otherStage, int64_t itemStage) {
    return other.kind == (item.kind == Kind::Send ? Kind::Recv : Kind::Send) &&
           other.channel == item.channel && other.peer == itemStage && item.peer == otherStage;
  }

  /// The stream of the peer whose head is the other end of `item`.
  std::optional<Place> findPartner(unsigned stage, const Item &item) const {
    std::optional<unsigned> peer = findStage(item.peer);
    if (!peer)
      return std::nullopt;
    for (unsigned j = 0; j < stages[*peer].streams.size(); ++j)
      if (const Item *head = getHead({*peer, j}))
        if (matches(item, *head, item.peer, stages[stage].stage))
          return Place{*peer, j};
    return std::nullopt;
  }

  /// Moves every stream as far as it goes alone or with one partner; false when nothing moved.
  bool step() {
    bool moved = false;
    for (unsigned i = 0; i < stages.size(); ++i) {
      for (unsigned j = 0; j < stages[i].streams.size(); ++j) {
        while (const Item *item = getHead({i, j})) {
          if (item->kind == Kind::Record) {
            recorded[i].insert(item->event);
          } else if (item->kind == Kind::Wait) {
            if (!recorded[i].count(item->event))
              break;
          } else {
            std::optional<Place> partner = findPartner(i, *item);
            if (!partner)
              break;
            ++heads[partner->first][partner->second];
          }
          ++heads[i][j];
          moved = true;
        }
      }
    }
    return moved;
  }

  /// The stream that would let the head of `place` go on, if there is one.
  std::optional<Place> getBlocker(Place place) const {
    const Item &item = *getHead(place);
    unsigned stage = place.first;
    if (item.kind != Kind::Wait) {
      std::optional<unsigned> peer = findStage(item.peer);
      if (!peer)
        return std::nullopt;
      stage = *peer;
    }
    for (unsigned j = 0; j < stages[stage].streams.size(); ++j) {
      const std::vector<Item> &items = stages[stage].streams[j].items;
      for (size_t k = heads[stage][j]; k < items.size(); ++k) {
        bool helps = item.kind == Kind::Wait
                         ? items[k].kind == Kind::Record && items[k].event == item.event
                         : matches(item, items[k], item.peer, stages[place.first].stage);
        if (helps)
          return Place{stage, j};
      }
    }
    return std::nullopt;
  }

  void print(raw_ostream &stream, Place place) const {
    const Item &item = *getHead(place);
    stream << "stage " << stages[place.first].stage << " '"
           << stages[place.first].streams[place.second].name << "' iteration " << item.iteration;
    if (item.kind == Kind::Wait)
      stream << " waits for an event";
    else
      stream << (item.kind == Kind::Send ? " sends channel " : " receives channel ") << item.channel
             << (item.kind == Kind::Send ? " to stage " : " from stage ") << item.peer;
  }

  /// Follows who waits for whom until a stream comes up again, or nobody can help.
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
    auto cycle = ArrayRef(path.getArrayRef()).drop_front(llvm::find(path, place) - path.begin());
    llvm::interleave(cycle, stream, [&](Place at) { print(stream, at); }, "; ");
    return text;
  }

  ArrayRef<StageTrace> stages;
  std::vector<std::vector<size_t>> heads;
  std::vector<std::set<int64_t>> recorded; // events, per stage
};

} // namespace

std::optional<std::string> findDeadlock(ArrayRef<StageTrace> stages) {
  return Simulation(stages).run();
}

} // namespace gridloom
