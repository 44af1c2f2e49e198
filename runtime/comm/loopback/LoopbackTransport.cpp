//===- LoopbackTransport.cpp - N logical ranks on one GPU -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/loopback/LoopbackTransport.h"

#include "runtime/comm/loopback/ReducePtx.h"

#include <algorithm>

using namespace gridloom::rt;

namespace {

constexpr uint32_t threadsPerBlock = 256;
constexpr size_t mostBlocks = 1024;

using Calls = std::span<LoopbackCall *const>;

/// State shared by the members of a communicator.
struct Group {
  std::string name; // unique in the job
  std::vector<int> ranks;
  std::vector<std::unique_ptr<Event>> events;
};

/// The work of all members of one operation.
class Work {
public:
  Work(LoopbackHub &hub, Group &group, Calls calls)
      : hub(hub), group(group), calls(calls), terms(calls.front()->terms),
        width(sizeOf(terms.type)) {}

  void run();

private:
  /// All streams wait for what is on any of them.
  void join();
  void copy(size_t member, size_t outElement, const void *from, size_t fromElement, size_t count);
  /// Reduces elements [begin, begin + count) of all inputs to out + outElement on member's stream.
  void reduce(size_t member, size_t begin, size_t outElement, size_t count);
  void allReduce();
  void gatherMany(size_t member);

  size_t size() const { return calls.size(); }
  static const std::byte *at(const void *base, size_t bytes) {
    return static_cast<const std::byte *>(base) + bytes;
  }

  LoopbackHub &hub;
  Group &group;
  Calls calls;
  const CallTerms &terms;
  size_t width;
};

} // namespace

void Work::join() {
  CudaStream &first = *calls.front()->stream;
  for (size_t i = 1; i < size(); ++i) {
    calls[i]->stream->record(*group.events[i]);
    first.wait(*group.events[i]);
  }
  first.record(*group.events[0]);
  for (size_t i = 1; i < size(); ++i)
    calls[i]->stream->wait(*group.events[0]);
}

void Work::copy(size_t member, size_t outElement, const void *from, size_t fromElement,
                size_t count) {
  LoopbackCall &call = *calls[member];
  call.device->copy(*call.stream, static_cast<std::byte *>(call.out) + outElement * width,
                    at(from, fromElement * width), count * width);
}

void Work::reduce(size_t member, size_t begin, size_t outElement, size_t count) {
  if (count == 0)
    return;
  LoopbackCall &call = *calls[member];
  std::vector<void *> parameters;
  for (const LoopbackCall *other : calls)
    parameters.push_back(const_cast<std::byte *>(at(other->in, begin * width)));
  parameters.push_back(static_cast<std::byte *>(call.out) + outElement * width);
  bool isAligned = std::all_of(parameters.begin(), parameters.end(), [](void *pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % reduceVectorBytes == 0;
  });
  size_t perVector = reduceVectorBytes / width, vectors = isAligned ? count / perVector : 0;
  // Kernels take parameters of 8 bytes; these two are numbers.
  parameters.push_back(reinterpret_cast<void *>(vectors));
  parameters.push_back(reinterpret_cast<void *>(count));
  size_t work = std::max(vectors, count - vectors * perVector);
  LaunchShape shape;
  shape.grid[0] = uint32_t(std::min(mostBlocks, (work + threadsPerBlock - 1) / threadsPerBlock));
  shape.block[0] = threadsPerBlock;
  Kernel &kernel = hub.getReduction(*call.device, terms.type, terms.reduction, int(size()));
  call.device->launch(*call.stream, kernel, shape, parameters);
}

/// Each member reduces its slice for all, then takes the others' slices. In place, a slice is read
/// by its own member alone before it is written.
void Work::allReduce() {
  size_t perVector = reduceVectorBytes / width;
  size_t slice = (terms.count + size() - 1) / size();
  slice = (slice + perVector - 1) / perVector * perVector;
  auto begin = [&](size_t member) { return std::min<size_t>(terms.count, member * slice); };
  auto length = [&](size_t member) { return begin(member + 1) - begin(member); };
  for (size_t i = 0; i < size(); ++i)
    reduce(i, begin(i), begin(i), length(i));
  join();
  for (size_t i = 0; i < size(); ++i)
    for (size_t other = 0; other < size(); ++other)
      if (other != i)
        copy(i, begin(other), calls[other]->out, begin(other), length(other));
}

void Work::gatherMany(size_t member) {
  LoopbackCall &call = *calls[member];
  for (size_t i = 0; i < call.values.size(); ++i) {
    const GatheredValue &value = call.values[i];
    for (size_t from = 0; from < size(); ++from)
      call.device->copy(*call.stream, static_cast<std::byte *>(value.out) + from * value.bytes,
                        calls[from]->values[i].in, value.bytes);
  }
}

void Work::run() {
  size_t count = terms.count;
  for (const LoopbackCall *call : calls)
    if (call->values.size() != calls.front()->values.size())
      throw Error(ErrorCode::InvalidArgument,
                  "the members gather different values in " + call->operation.describe());
  join();
  for (size_t i = 0; i < size(); ++i)
    switch (terms.kind) {
    case CallKind::ReduceScatter:
      reduce(i, i * count, 0, count);
      break;
    case CallKind::AllGather:
      if (!calls[i]->values.empty()) {
        gatherMany(i);
        break;
      }
      for (size_t from = 0; from < size(); ++from)
        copy(i, from * count, calls[from]->in, 0, count);
      break;
    case CallKind::AllToAll:
      for (size_t from = 0; from < size(); ++from)
        copy(i, from * count, calls[from]->in, i * count, count);
      break;
    case CallKind::Broadcast:
      copy(i, 0, calls[size_t(terms.root)]->in, 0, count);
      break;
    case CallKind::Send: // calls: the sender's, the receiver's
      if (i == 1)
        copy(1, 0, calls[0]->in, 0, count);
      break;
    default:
      break;
    }
  if (terms.kind == CallKind::AllReduce)
    allReduce();
  if (terms.kind != CallKind::Barrier)
    join();
}

//===----------------------------------------------------------------------===//
// LoopbackCommunicator
//===----------------------------------------------------------------------===//

namespace {

class LoopbackCommunicator final : public Communicator {
public:
  LoopbackCommunicator(std::shared_ptr<LoopbackHub> hub, CudaDevice &device, int rank,
                       std::span<const int> ranks, const std::string &key, const std::string &name,
                       const TransportOptions &options);

  int getRank() const override { return index; }
  int getSize() const override { return int(ranks.size()); }

  void allReduce(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 Reduction reduction, OpContext op) override {
    meet(stream, {CallKind::AllReduce, count, type, reduction}, in, out, op);
  }
  void allGather(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 OpContext op) override {
    meet(stream, {CallKind::AllGather, count, type}, in, out, op);
  }
  void allGatherMany(Stream &stream, std::span<const GatheredValue> values, OpContext op) override {
    size_t bytes = 0;
    for (const GatheredValue &value : values)
      bytes += value.bytes;
    meet(stream, {CallKind::AllGather, bytes, DataType::U8}, nullptr, nullptr, op, values);
  }
  void reduceScatter(Stream &stream, const void *in, void *out, size_t count, DataType type,
                     Reduction reduction, OpContext op) override {
    meet(stream, {CallKind::ReduceScatter, count, type, reduction}, in, out, op);
  }
  void allToAll(Stream &stream, const void *in, void *out, size_t count, DataType type,
                OpContext op) override {
    meet(stream, {CallKind::AllToAll, count, type}, in, out, op);
  }
  void broadcast(Stream &stream, const void *in, void *out, size_t count, DataType type, int root,
                 OpContext op) override {
    meet(stream, {CallKind::Broadcast, count, type, Reduction::Sum, root}, in, out, op);
  }
  void barrier(Stream &stream, OpContext op) override {
    meet(stream, {CallKind::Barrier}, nullptr, nullptr, op);
  }
  void send(Stream &stream, const void *in, size_t count, DataType type, int peer,
            OpContext op) override {
    Transfer transfer(*this, stream, CallKind::Send, in, nullptr, peer, count, type, op);
    transfer.await();
  }
  void recv(Stream &stream, void *out, size_t count, DataType type, int peer,
            OpContext op) override {
    Transfer transfer(*this, stream, CallKind::Recv, nullptr, out, peer, count, type, op);
    transfer.await();
  }
  void sendRecv(Stream &stream, const void *in, int to, void *out, int from, size_t count,
                DataType type, bool, OpContext op) override {
    Transfer sending(*this, stream, CallKind::Send, in, nullptr, to, count, type, op);
    Transfer receiving(*this, stream, CallKind::Recv, nullptr, out, from, count, type, op);
    sending.await();
    receiving.await();
  }

private:
  /// This member's end of a transfer, announced; it is in the meeting until it has awaited it.
  class Transfer {
  public:
    Transfer(LoopbackCommunicator &owner, Stream &stream, CallKind kind, const void *in, void *out,
             int peer, size_t count, DataType type, const OpContext &op);
    Transfer(const Transfer &) = delete;
    Transfer &operator=(const Transfer &) = delete;
    ~Transfer();
    void await();

  private:
    LoopbackCommunicator &owner;
    LoopbackCall call;
    std::shared_ptr<LoopbackHub::Meeting> meeting;
  };

  LoopbackCall makeCall(Stream &stream, CallTerms terms, const void *in, void *out,
                        const OpContext &op) const;
  void meet(Stream &stream, const CallTerms &terms, const void *in, void *out, const OpContext &op,
            std::span<const GatheredValue> values = {});
  LoopbackWork makeWork(Group &of) {
    return [this, &of](Calls calls) { Work(*hub, of, calls).run(); };
  }
  Group makeGroup(std::string groupName, std::vector<int> members);

  std::shared_ptr<LoopbackHub> hub;
  CudaDevice &device;
  const int rank;
  const std::vector<int> ranks;
  const int index;
  const std::string name;
  const TransportOptions options;
  Group group;
  uint64_t numCollectives = 0;
  std::mutex mutex; // of the transfers, which several threads may make
  std::map<std::string, std::pair<uint64_t, Group>> routes;
};

class LoopbackTransport final : public Transport {
public:
  LoopbackTransport(CudaDevice &device, std::shared_ptr<LoopbackHub> hub, int rank,
                    const TransportOptions &options)
      : device(device), hub(std::move(hub)), rank(rank), options(options) {
    this->hub->join(rank);
  }
  ~LoopbackTransport() override { hub->leave(rank); }

  std::string getName() const override { return "loopback"; }
  bool sharesDevice() const override { return true; }
  int getRank() const override { return rank; }
  int getSize() const override { return hub->getSize(); }
  std::unique_ptr<Communicator> createCommunicator(std::span<const int> ranks,
                                                   const std::string &name) override;
  void abort(const std::string &reason) override {
    hub->abort(ErrorCode::PeerFailed, "rank " + std::to_string(rank) + " gave up: " + reason);
  }
  void check() override { hub->check(rank, {"communication", {}, "", ""}); }

private:
  CudaDevice &device;
  std::shared_ptr<LoopbackHub> hub;
  int rank;
  TransportOptions options;
  std::map<std::vector<int>, int> generations;
};

} // namespace

LoopbackCommunicator::LoopbackCommunicator(std::shared_ptr<LoopbackHub> ofJob, CudaDevice &device,
                                           int rank, std::span<const int> members,
                                           const std::string &key, const std::string &name,
                                           const TransportOptions &options)
    : hub(std::move(ofJob)), device(device), rank(rank), ranks(members.begin(), members.end()),
      index(int(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin())), name(name),
      options(options), group(makeGroup(key, ranks)) {
  LoopbackCall call{{CallKind::Create}, rank};
  call.terms.origin = name;
  call.device = &device;
  call.operation = {"making a communicator", {}, "", describeGroup(ranks, name)};
  auto compareGpus = [](Calls calls) {
    for (const LoopbackCall *other : calls)
      if (other->device->getContext()->getOrdinal() !=
          calls.front()->device->getContext()->getOrdinal())
        throw Error(ErrorCode::InvalidArgument, "loopback joins ranks of one GPU, but rank " +
                                                    std::to_string(calls.front()->rank) +
                                                    " is on " + calls.front()->device->getName() +
                                                    " and rank " + std::to_string(other->rank) +
                                                    " on " + other->device->getName() +
                                                    "; use --transport nccl");
  };
  auto meeting = hub->post(key, ranks, size_t(index), call, compareGpus);
  hub->await(*meeting, call, options);
}

Group LoopbackCommunicator::makeGroup(std::string groupName, std::vector<int> members) {
  Group made{std::move(groupName), std::move(members), {}};
  for (size_t i = 0; i < made.ranks.size(); ++i)
    made.events.push_back(device.createEvent());
  return made;
}

LoopbackCall LoopbackCommunicator::makeCall(Stream &stream, CallTerms terms, const void *in,
                                            void *out, const OpContext &op) const {
  terms.sequence = op.sequence;
  terms.origin = op.origin;
  LoopbackCall call{terms, rank, in, out, dynamic_cast<CudaStream *>(&stream), &device};
  call.operation = {op.kind && *op.kind ? op.kind : std::string(nameOf(terms.kind)), op.sequence,
                    std::string(op.origin), describeGroup(ranks, name)};
  if (!call.stream)
    throw Error(ErrorCode::InvalidArgument,
                "loopback needs a stream of a GPU; run this plan with --transport local");
  checkRoot(terms.kind, terms.root, index, getSize(), call.operation);
  return call;
}

void LoopbackCommunicator::meet(Stream &stream, const CallTerms &terms, const void *in, void *out,
                                const OpContext &op, std::span<const GatheredValue> values) {
  LoopbackCall call = makeCall(stream, terms, in, out, op);
  call.values = values;
  std::string key = group.name + " #" + std::to_string(++numCollectives);
  auto meeting = hub->post(key, ranks, size_t(index), call, makeWork(group));
  hub->await(*meeting, call, options);
}

LoopbackCommunicator::Transfer::Transfer(LoopbackCommunicator &owner, Stream &stream, CallKind kind,
                                         const void *in, void *out, int peer, size_t count,
                                         DataType type, const OpContext &op)
    : owner(owner),
      call(owner.makeCall(stream, {kind, count, type, Reduction::Sum, peer}, in, out, op)) {
  bool sends = kind == CallKind::Send;
  std::vector<int> ends = {owner.rank, owner.ranks[size_t(peer)]};
  if (!sends)
    std::swap(ends[0], ends[1]);
  std::string route =
      owner.group.name + " " + std::to_string(ends[0]) + ">" + std::to_string(ends[1]);
  std::string key;
  Group *group = nullptr;
  {
    std::lock_guard lock(owner.mutex);
    auto known = owner.routes.find(route);
    if (known == owner.routes.end())
      known =
          owner.routes.emplace(route, std::pair(uint64_t(0), owner.makeGroup(route, ends))).first;
    key = route + " #" + std::to_string(++known->second.first);
    group = &known->second.second;
  }
  meeting = owner.hub->post(key, ends, sends ? 0 : 1, call, owner.makeWork(*group));
}

void LoopbackCommunicator::Transfer::await() {
  std::shared_ptr<LoopbackHub::Meeting> awaited = std::move(meeting);
  owner.hub->await(*awaited, call, owner.options);
}

/// A peer may be using `call`: it stays until the job's failure is known to all.
LoopbackCommunicator::Transfer::~Transfer() {
  if (!meeting)
    return;
  owner.hub->abort(ErrorCode::PeerFailed,
                   "rank " + std::to_string(owner.rank) + " gave up " + call.operation.describe());
  try {
    owner.hub->await(*meeting, call, owner.options);
  } catch (const Error &) {
    return; // the error that follows is more precise
  }
}

std::unique_ptr<Communicator> LoopbackTransport::createCommunicator(std::span<const int> ranks,
                                                                    const std::string &name) {
  checkGroup(ranks, rank, getSize(), name);
  std::string key;
  for (int member : ranks)
    key += std::to_string(member) + ",";
  key += "/" + std::to_string(generations[{ranks.begin(), ranks.end()}]++);
  return std::make_unique<LoopbackCommunicator>(hub, device, rank, ranks, key, name, options);
}

std::unique_ptr<Transport> gridloom::rt::createLoopbackTransport(CudaDevice &device,
                                                                 std::shared_ptr<LoopbackHub> hub,
                                                                 int rank,
                                                                 const TransportOptions &options) {
  if (rank < 0 || rank >= hub->getSize())
    throw Error(ErrorCode::InvalidArgument, "rank " + std::to_string(rank) +
                                                " is outside a job of " +
                                                std::to_string(hub->getSize()) + " ranks");
  return std::make_unique<LoopbackTransport>(device, std::move(hub), rank, options);
}
