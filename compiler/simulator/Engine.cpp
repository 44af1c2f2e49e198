//===- Engine.cpp - streams, events and links over time -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Engine.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_set>

using namespace gridloom;
using namespace gridloom::sim;

namespace {

/// A stream, by the indices of its stage and its own in that.
struct Place {
  size_t stage, stream;
};

/// The share of a link's direction that a passage takes when nothing slows it down.
struct Use {
  size_t link;
  double share;
};

/// What a stream, or all streams that meet, does now.
struct Activity {
  std::vector<Place> places; ///< that it keeps busy
  std::shared_ptr<const std::vector<cluster::Passage>> passages;
  size_t next = 0; ///< passage
  bool isMoving = false;
  // While its bytes move:
  std::vector<Use> uses;
  double cores = 0; ///< as of Item
  double left = 0;  ///< seconds when alone, from `since` on
  double rate = 1;  ///< of its speed when alone
  double since = 0;
  uint64_t version = 0; ///< of its last entry in the queue
};

/// When an activity proceeds.
struct Turn {
  double seconds;
  uint64_t order;
  size_t activity;
  uint64_t version;
  bool operator>(const Turn &other) const {
    return std::tie(seconds, order) > std::tie(other.seconds, other.order);
  }
};

struct StreamState {
  size_t head = 0;
  bool isReached = false, isBusy = false;
};

struct StageState {
  std::vector<StreamState> streams;
  std::unordered_set<int64_t> events;
  std::vector<double> meetings; ///< when they ended, by number
};

/// Links have no bandwidth here: passages know how long they take alone.
enum Direction : size_t { kOut, kIn, kNumDirections };

class Engine {
public:
  explicit Engine(std::span<const Stage> stages);
  std::optional<Timeline> run(std::string &error);

private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>; ///< from, to, channel, iteration

  const Item &getHead(Place place) const {
    return stages[place.stage]
        .streams[place.stream][states[place.stage].streams[place.stream].head];
  }
  Span &getSpan(Place place) {
    return timeline
        .spans[place.stage][place.stream][states[place.stage].streams[place.stream].head];
  }
  void complete(Place place);
  bool advance(Place place);
  bool meet(size_t stage);
  bool transfer(Place place);
  void start(std::vector<Place> places, double seconds, const Item *item,
             std::vector<std::pair<size_t, Direction>> ends);
  void schedule(size_t activity, double seconds);
  void proceed(size_t activity);
  void setMoving(size_t activity, bool moves);
  void hold(size_t activity, double seconds);
  void release(size_t activity);
  void share();
  std::vector<size_t> collectSharers(size_t link);
  void divide(const std::vector<size_t> &sharers);
  void setRate(size_t activity, double rate);
  void settle();
  std::string describeStuck() const;

  std::span<const Stage> stages;
  std::vector<StageState> states;
  std::map<int64_t, size_t> indices; ///< of stages, by their numbers
  std::map<Key, Place> waiting;      ///< ends of transfers that wait for the other end
  std::vector<Activity> activities;
  std::vector<std::vector<std::pair<size_t, Direction>>> ends; ///< stages whose links they hold
  std::vector<size_t> freeActivities;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  std::vector<std::vector<size_t>> holders; ///< activities, by link
  std::vector<size_t> changedLinks, openStages;
  std::vector<bool> isOpen;
  size_t numLevels = 1;
  size_t cores = 0; ///< index of the shared cores, which follow the links of stages
  Timeline timeline;
  double now = 0;
  uint64_t nextOrder = 0;
};

} // namespace

Engine::Engine(std::span<const Stage> stages) : stages(stages), isOpen(stages.size(), true) {
  for (size_t i = 0; i < stages.size(); ++i) {
    indices[stages[i].number] = i;
    states.emplace_back().streams.resize(stages[i].streams.size());
    auto &spans = timeline.spans.emplace_back();
    for (const std::vector<Item> &stream : stages[i].streams) {
      spans.emplace_back(stream.size());
      for (const Item &item : stream)
        if (item.passages)
          for (const cluster::Passage &passage : *item.passages)
            for (const cluster::Load &load : passage.loads)
              numLevels = std::max(numLevels, load.level + 1);
    }
    openStages.push_back(i);
  }
  cores = stages.size() * numLevels * kNumDirections;
  holders.resize(cores + 1);
}

void Engine::complete(Place place) {
  StreamState &stream = states[place.stage].streams[place.stream];
  Span &span = getSpan(place);
  span.end = now;
  span.endOrder = nextOrder++;
  timeline.seconds = std::max(timeline.seconds, now);
  ++stream.head;
  stream.isBusy = stream.isReached = false;
  if (!isOpen[place.stage]) {
    isOpen[place.stage] = true;
    openStages.push_back(place.stage);
  }
}

/// Lets the stream's head begin, or pass, if it can. Returns whether it could.
bool Engine::advance(Place place) {
  StageState &stage = states[place.stage];
  StreamState &stream = stage.streams[place.stream];
  if (stream.isBusy || stream.head == stages[place.stage].streams[place.stream].size())
    return false;
  const Item &item = getHead(place);
  bool isNew = !stream.isReached;
  if (isNew) {
    stream.isReached = true;
    getSpan(place).begin = now;
    getSpan(place).beginOrder = nextOrder++;
  }
  switch (item.kind) {
  case Item::Kind::Record:
    stage.events.insert(item.event);
    complete(place);
    return true;
  case Item::Kind::Wait:
    if (!stage.events.count(item.event))
      return false;
    complete(place);
    return true;
  case Item::Kind::Work:
    start({place}, item.seconds, &item, {});
    return true;
  case Item::Kind::Collective:
    start({place}, item.seconds, &item, {{place.stage, kOut}, {place.stage, kIn}});
    return true;
  case Item::Kind::Meet:
    return meet(place.stage);
  case Item::Kind::Send:
  case Item::Kind::Recv:
    return isNew && transfer(place);
  }
  return false;
}

bool Engine::meet(size_t stage) {
  std::vector<Place> places;
  for (size_t i = 0; i < states[stage].streams.size(); ++i) {
    Place place{stage, i};
    const StreamState &stream = states[stage].streams[i];
    if (!stream.isReached || stream.isBusy || getHead(place).kind != Item::Kind::Meet)
      return false;
    places.push_back(place);
  }
  const Item &item = getHead(places.front());
  std::vector<double> &meetings = states[stage].meetings;
  auto number = static_cast<size_t>(item.event);
  if (meetings.size() <= number)
    meetings.resize(number + 1);
  double pause =
      item.repeats > 0 ? item.repeats * (now - meetings[static_cast<size_t>(item.since)]) : 0;
  meetings[number] = now + pause;
  start(places, pause, nullptr, {});
  return true;
}

/// Begins a transfer if its other end already waits; else lets this end wait.
bool Engine::transfer(Place place) {
  const Item &item = getHead(place);
  int64_t own = stages[place.stage].number;
  bool sends = item.kind == Item::Kind::Send;
  Key key = sends ? Key(own, item.peer, item.channel, item.iteration)
                  : Key(item.peer, own, item.channel, item.iteration);
  auto other = waiting.find(key);
  if (other == waiting.end()) {
    waiting[key] = place;
    return false;
  }
  Place peer = other->second;
  if (getHead(peer).kind == item.kind)
    return false; // two sends with one key never meet
  waiting.erase(other);
  Place from = sends ? place : peer, to = sends ? peer : place;
  // The longer of measured times includes waiting for the other end.
  double seconds = std::min(getHead(from).seconds, getHead(to).seconds);
  start({from, to}, seconds, &getHead(from), {{from.stage, kOut}, {to.stage, kIn}});
  return true;
}

/// Begins an activity that takes `seconds`, then the passages of `item` over links of `held`. Work
/// on shared cores holds these for its seconds.
void Engine::start(std::vector<Place> places, double seconds, const Item *item,
                   std::vector<std::pair<size_t, Direction>> held) {
  size_t index = activities.size();
  if (freeActivities.empty()) {
    activities.emplace_back();
    ends.emplace_back();
  } else {
    index = freeActivities.back();
    freeActivities.pop_back();
  }
  Activity &activity = activities[index];
  activity.places = std::move(places);
  activity.passages = item ? item->passages : nullptr;
  activity.cores = item ? item->cores : 0;
  activity.next = 0;
  activity.isMoving = false;
  ends[index] = std::move(held);
  for (Place place : activity.places) {
    states[place.stage].streams[place.stream].isBusy = true;
    getSpan(place).met = now;
  }
  if (activity.cores > 0 && item->kind == Item::Kind::Work) {
    activity.uses.clear();
    return hold(index, seconds);
  }
  bool moves = activity.passages && !activity.passages->empty();
  schedule(index, now + (seconds + (moves ? activity.passages->front().latencySeconds : 0)));
}

void Engine::schedule(size_t activity, double seconds) {
  turns.push({seconds, nextOrder++, activity, ++activities[activity].version});
}

/// Continues after a latency or a passage.
void Engine::proceed(size_t index) {
  Activity &activity = activities[index];
  const std::vector<cluster::Passage> *passages = activity.passages.get();
  if (activity.isMoving) {
    setMoving(index, false);
    ++activity.next;
  } else if (passages && activity.next < passages->size()) {
    if (!(*passages)[activity.next].loads.empty())
      return setMoving(index, true);
    ++activity.next;
  }
  if (passages && activity.next < passages->size())
    return schedule(index, now + (*passages)[activity.next].latencySeconds);
  for (Place place : activity.places)
    complete(place);
  ++activity.version;
  freeActivities.push_back(index);
}

//===----------------------------------------------------------------------===//
// Links
//===----------------------------------------------------------------------===//

/// Puts the bytes of the activity's passage on its links, or takes them off.
void Engine::setMoving(size_t index, bool moves) {
  if (!moves)
    return release(index);
  Activity &activity = activities[index];
  const cluster::Passage &passage = (*activity.passages)[activity.next];
  double alone = passage.getTransferSeconds();
  activity.uses.clear();
  for (const cluster::Load &load : passage.loads)
    for (auto [stage, direction] : ends[index])
      activity.uses.push_back(
          {(stage * numLevels + load.level) * kNumDirections + direction, load.seconds / alone});
  hold(index, alone);
}

/// Holds the activity's links and cores for `seconds`, if nothing slows it down.
void Engine::hold(size_t index, double seconds) {
  Activity &activity = activities[index];
  if (activity.cores > 0)
    activity.uses.push_back({cores, activity.cores});
  activity.isMoving = true;
  activity.left = seconds;
  activity.since = now;
  activity.rate = 0; // until links are shared again
  for (const Use &use : activity.uses) {
    holders[use.link].push_back(index);
    changedLinks.push_back(use.link);
  }
}

void Engine::release(size_t index) {
  Activity &activity = activities[index];
  activity.isMoving = false;
  for (const Use &use : activity.uses) {
    std::erase(holders[use.link], index);
    changedLinks.push_back(use.link);
  }
}

void Engine::setRate(size_t index, double rate) {
  Activity &activity = activities[index];
  if (activity.rate == rate)
    return;
  activity.left = std::max(0.0, activity.left - (now - activity.since) * activity.rate);
  activity.since = now;
  activity.rate = rate;
  schedule(index, now + activity.left / rate);
}

/// All activities that hold the link, or a link of another such activity, and so on.
std::vector<size_t> Engine::collectSharers(size_t link) {
  std::vector<size_t> sharers = holders[link];
  for (size_t i = 0; i < sharers.size(); ++i)
    for (const Use &use : activities[sharers[i]].uses)
      for (size_t other : holders[use.link])
        if (std::find(sharers.begin(), sharers.end(), other) == sharers.end())
          sharers.push_back(other);
  return sharers;
}

/// Max-min fair rates: all grow alike until a link is full, then those not on it grow further.
void Engine::divide(const std::vector<size_t> &sharers) {
  std::map<size_t, double> room; // by link
  for (size_t sharer : sharers)
    for (const Use &use : activities[sharer].uses)
      room[use.link] = 1;
  std::vector<size_t> growing = sharers;
  double rate = 0;
  while (!growing.empty()) {
    std::map<size_t, double> demand;
    for (size_t sharer : growing)
      for (const Use &use : activities[sharer].uses)
        demand[use.link] += use.share;
    double step = 1 - rate; // nothing is faster than alone
    for (auto [link, wanted] : demand)
      step = std::min(step, room[link] / wanted);
    rate += step;
    std::unordered_set<size_t> full;
    for (auto [link, wanted] : demand) {
      if (room[link] / wanted <= step)
        full.insert(link);
      room[link] -= step * wanted;
    }
    std::erase_if(growing, [&](size_t sharer) {
      const std::vector<Use> &uses = activities[sharer].uses;
      bool isHeldUp = rate >= 1 || std::any_of(uses.begin(), uses.end(), [&](const Use &use) {
                        return full.count(use.link) > 0;
                      });
      if (isHeldUp)
        setRate(sharer, std::min(rate, 1.0));
      return isHeldUp;
    });
  }
}

/// Shares links again whose holders have changed.
void Engine::share() {
  std::unordered_set<size_t> done;
  for (size_t link : changedLinks) {
    if (holders[link].empty() || done.count(holders[link].front()))
      continue;
    std::vector<size_t> sharers = collectSharers(link);
    done.insert(sharers.begin(), sharers.end());
    if (sharers.size() == 1)
      setRate(sharers.front(), 1);
    else
      divide(sharers);
  }
  changedLinks.clear();
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

/// Lets every stream go as far as it can at this moment.
void Engine::settle() {
  while (!openStages.empty()) {
    size_t stage = openStages.back();
    openStages.pop_back();
    isOpen[stage] = false;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < stages[stage].streams.size(); ++i)
        while (advance({stage, i}))
          moved = true;
    }
  }
  share();
}

std::string Engine::describeStuck() const {
  for (size_t i = 0; i < stages.size(); ++i)
    for (size_t j = 0; j < stages[i].streams.size(); ++j) {
      if (states[i].streams[j].head == stages[i].streams[j].size())
        continue;
      const Item &item = getHead({i, j});
      std::string text = "stage " + std::to_string(stages[i].number);
      if (item.kind == Item::Kind::Send || item.kind == Item::Kind::Recv)
        return text +
               (item.kind == Item::Kind::Send ? " sends to stage " : " receives from stage ") +
               std::to_string(item.peer) + " on channel " + std::to_string(item.channel) +
               " in iteration " + std::to_string(item.iteration) + ", which does not answer";
      return text + " waits for an event that nothing records";
    }
  return "";
}

std::optional<Timeline> Engine::run(std::string &error) {
  settle();
  while (!turns.empty()) {
    Turn turn = turns.top();
    turns.pop();
    if (turn.version != activities[turn.activity].version)
      continue;
    now = turn.seconds;
    proceed(turn.activity);
    settle();
  }
  error = describeStuck();
  return error.empty() ? std::optional(std::move(timeline)) : std::nullopt;
}

std::optional<Timeline> gridloom::sim::run(std::span<const Stage> stages, std::string &error) {
  return Engine(stages).run(error);
}
