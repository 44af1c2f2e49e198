//===- Communicators.cpp - communicators of a rank ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Communicators.h"

#include "runtime/core/Error.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <functional>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

using Body = google::protobuf::RepeatedPtrField<schema::Control>;

/// Calls visit(group, guarded) for each group step, in order; `guarded`: inside a loop or branch.
template <typename Visit> static void forEachGroup(const Body &body, bool guarded, Visit &visit) {
  for (const schema::Control &control : body) {
    for (const schema::Step &step : control.block().steps())
      if (step.has_group())
        visit(step.group(), guarded);
    forEachGroup(control.repeat().body(), guarded, visit);
    forEachGroup(control.loop().body(), true, visit);
    forEachGroup(control.branch().then(), true, visit);
    forEachGroup(control.branch().otherwise(), true, visit);
  }
}

/// The name of the group over `axes`: data+model.
static std::string getName(const std::vector<std::string> &axes) {
  std::string name;
  for (const std::string &axis : axes)
    name += (name.empty() ? "" : "+") + axis;
  return name;
}

namespace {
/// The communicators that the programs of one stage need.
struct StageNeeds {
  std::vector<std::vector<std::string>> groups; // axes, in order of first use
  bool condition = false;
  std::set<std::pair<int, int>> edges; // from, to
};
} // namespace

static StageNeeds findNeeds(const schema::Stage &stage) {
  StageNeeds needs;
  std::set<std::vector<std::string>> seen;
  for (const schema::Entry &entry : stage.entries())
    for (const schema::Specialisation &program : entry.specialisations()) {
      auto visit = [&](const schema::Group &group, bool guarded) {
        needs.condition |= guarded;
        int mine = int(stage.stage()), peer = int(group.peer_stage());
        if (group.kind() == schema::Group::SEND)
          needs.edges.insert({mine, peer});
        else if (group.kind() == schema::Group::RECV)
          needs.edges.insert({peer, mine});
        else {
          std::vector<std::string> axes(group.axes().begin(), group.axes().end());
          if (seen.insert(axes).second)
            needs.groups.push_back(axes);
        }
      };
      forEachGroup(program.body(), false, visit);
    }
  return needs;
}

Communicators::Communicators(const Plan &plan, int rank, Transport &transport) {
  const Mesh &mesh = plan.getMesh();
  int mine = mesh.getStage(rank);
  std::set<std::pair<int, int>> edges;
  for (int number = 0; number < plan.getNumStages(); ++number) {
    StageNeeds needs = findNeeds(plan.getStage(number));
    edges.insert(needs.edges.begin(), needs.edges.end());
    std::vector<int> stageRanks = mesh.getStageRanks(number);
    std::string prefix = "stage" + std::to_string(number) + ":";
    // split is collective over all ranks: ranks of other stages call it with no members.
    auto split = [&](std::vector<int> ranks, const std::string &name) {
      std::sort(ranks.begin(), ranks.end());
      return transport.split(mine == number ? ranks : std::vector<int>(), name);
    };
    for (const std::vector<std::string> &axes : needs.groups)
      if (mesh.getGroup(stageRanks.front(), axes).size() > 1)
        if (auto group = split(mesh.getGroup(rank, axes), prefix + getName(axes)))
          groups[axes] = std::move(group);
    if (needs.condition && stageRanks.size() > 1)
      if (auto all = split(stageRanks, prefix + "control"))
        stage = std::move(all);
  }
  for (auto [from, to] : edges) {
    std::vector<int> ranks;
    int peerStage = mine == from ? to : from;
    if (mine == from || mine == to)
      ranks = {rank, mesh.getPeer(rank, peerStage)};
    std::sort(ranks.begin(), ranks.end());
    auto pair = transport.split(ranks, "stage" + std::to_string(from) + ">" + std::to_string(to));
    if (pair)
      pairs[{peerStage, mine == from}] = std::move(pair);
  }
}

void Communicators::registerMemory(const Memory &memory) const {
  for (const auto &[axes, group] : groups)
    group->registerMemory(memory);
}

Communicator *Communicators::getGroup(const std::vector<std::string> &axes) const {
  auto found = groups.find(axes);
  return found == groups.end() ? nullptr : found->second.get();
}

Communicator *Communicators::getPair(int peerStage, bool send) const {
  auto found = pairs.find({peerStage, send});
  return found == pairs.end() ? nullptr : found->second.get();
}

Reduction gridloom::rt::toReduction(int number) {
  switch (number) {
  case schema::Group::SUM:
    return Reduction::Sum;
  case schema::Group::MAX:
    return Reduction::Max;
  case schema::Group::MIN:
    return Reduction::Min;
  case schema::Group::PROD:
    return Reduction::Prod;
  default:
    throw Error(ErrorCode::InvalidPlan, "a group reduces by " + std::to_string(number));
  }
}

static std::vector<int> getAllRanks(const Plan &plan) {
  std::vector<int> ranks;
  for (int rank = 0; rank < plan.getMesh().getNumRanks(); ++rank)
    ranks.push_back(rank);
  return ranks;
}

size_t gridloom::rt::countCommunicators(const Plan &plan, int rank) {
  const Mesh &mesh = plan.getMesh();
  int mine = mesh.getStage(rank);
  size_t count = plan.getMesh().getNumRanks() > 1;
  StageNeeds needs = findNeeds(plan.getStage(mine));
  for (const std::vector<std::string> &axes : needs.groups)
    count += mesh.getGroup(rank, axes).size() > 1;
  count += needs.condition && mesh.getStageRanks(mine).size() > 1;
  std::set<std::pair<int, int>> edges;
  for (int number = 0; number < plan.getNumStages(); ++number)
    for (auto edge : findNeeds(plan.getStage(number)).edges)
      if (edge.first == mine || edge.second == mine)
        edges.insert(edge);
  return count + edges.size();
}

ControlChannel::ControlChannel(const Plan &plan, Device &device, Transport &transport)
    : device(device),
      room(std::max<size_t>(size_t(1) << 20, 512 * (size_t(plan.getMesh().getNumRanks()) + 1))),
      scratch(device.allocate(room)),
      stream(device.createStream(StreamKind::Communication, "control")),
      world(transport.createCommunicator(getAllRanks(plan), "world")) {}

/// Copies `bytes`, at most `room`, into device memory.
void *ControlChannel::stage(std::span<const std::byte> bytes) {
  if (!bytes.empty())
    device.copyIn(*stream, scratch->data, bytes.data(), bytes.size());
  return scratch->data;
}

void ControlChannel::finish(const void *from, std::span<std::byte> to) {
  if (!to.empty())
    device.copyOut(*stream, to.data(), from, to.size());
  stream->synchronize();
}

/// Calls pass(part) for consecutive parts of `bytes` of at most `room`; once if `bytes` is empty.
template <typename Byte, typename Pass>
static void forEachPart(std::span<Byte> bytes, size_t room, Pass pass) {
  do {
    std::span<Byte> part = bytes.first(std::min(bytes.size(), room));
    pass(part);
    bytes = bytes.subspan(part.size());
  } while (!bytes.empty());
}

std::vector<std::vector<std::byte>> ControlChannel::allGather(std::span<const std::byte> mine) {
  size_t members = size_t(world->getSize());
  std::vector<std::vector<std::byte>> result(members);
  forEachPart(mine, room / (members + 1), [&](std::span<const std::byte> part) {
    size_t each = part.size();
    auto *in = static_cast<std::byte *>(stage(part));
    world->allGather(*stream, in, in + each, each, DataType::U8, {"all_gather", 0, "control"});
    std::vector<std::byte> all(each * members);
    finish(in + each, all);
    for (size_t i = 0; i < members; ++i)
      result[i].insert(result[i].end(), all.begin() + ptrdiff_t(i * each),
                       all.begin() + ptrdiff_t((i + 1) * each));
  });
  return result;
}

void ControlChannel::broadcast(std::span<std::byte> bytes, int root) {
  bool isRoot = world->getRank() == root;
  forEachPart(bytes, room, [&](std::span<std::byte> part) {
    void *memory = stage(isRoot ? part : std::span<std::byte>());
    world->broadcast(*stream, memory, memory, part.size(), DataType::U8, root,
                     {"broadcast", 0, "control"});
    finish(memory, isRoot ? std::span<std::byte>() : part);
  });
}

void ControlChannel::send(std::span<const std::byte> bytes, int to) {
  forEachPart(bytes, room, [&](std::span<const std::byte> part) {
    world->send(*stream, stage(part), part.size(), DataType::U8, to, {"send", 0, "control"});
    stream->synchronize();
  });
}

void ControlChannel::receive(std::span<std::byte> bytes, int from) {
  forEachPart(bytes, room, [&](std::span<std::byte> part) {
    world->recv(*stream, scratch->data, part.size(), DataType::U8, from, {"recv", 0, "control"});
    finish(scratch->data, part);
  });
}
