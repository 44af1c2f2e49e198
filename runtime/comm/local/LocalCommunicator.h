//===- LocalCommunicator.h - collectives in shared memory -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Members stage pieces of their operands in slots of the communicator's region, meet, and read
// from each other's slots. A meeting is a counter per member. Round r uses slot r mod 3: when a
// member has passed a meeting, its peers have finished all they did before their own arrival, so
// they may still read what was staged for the last two rounds and never what the third replaces.
//
// Operands that lie in memory of LocalTransport::allocate on every member are not staged: members
// announce where they are, read and write each other's between two meetings, and pass the second
// only when nobody touches theirs any more. The order of a reduction is the members' in both cases,
// so the results' bits are the same.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALCOMMUNICATOR_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALCOMMUNICATOR_H

#include "runtime/comm/local/Membership.h"

#include <cstring>
#include <mutex>

namespace gridloom::rt {

class LocalCommunicator final : public Communicator {
public:
  /// `ranks` are world numbers in order, `index` is this rank's place among them. Returns when all
  /// members have come.
  LocalCommunicator(std::shared_ptr<Membership> membership, std::vector<int> ranks, int index,
                    uint32_t generation, std::string name);
  ~LocalCommunicator() override;

  int getRank() const override { return index; }
  int getSize() const override { return int(ranks.size()); }

  void allReduce(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 Reduction reduction, OpContext op) override;
  void allGather(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 OpContext op) override;
  void allGatherMany(Stream &stream, std::span<const GatheredValue> values, OpContext op) override;
  void reduceScatter(Stream &stream, const void *in, void *out, size_t count, DataType type,
                     Reduction reduction, OpContext op) override;
  void allToAll(Stream &stream, const void *in, void *out, size_t count, DataType type,
                OpContext op) override;
  void broadcast(Stream &stream, const void *in, void *out, size_t count, DataType type, int root,
                 OpContext op) override;
  void send(Stream &stream, const void *in, size_t count, DataType type, int peer,
            OpContext op) override;
  void recv(Stream &stream, void *out, size_t count, DataType type, int peer,
            OpContext op) override;
  void barrier(Stream &stream, OpContext op) override;

private:
  using Kind = CallKind;

  /// One call, as it waits in a stream.
  struct Call {
    Kind kind;
    const void *in = nullptr;
    void *out = nullptr;
    size_t count = 0;
    DataType type = DataType::U8;
    Reduction reduction = Reduction::Sum;
    int root = 0; // or the peer
    Operation operation = {};
    std::vector<GatheredValue> values = {}; // of an all_gather of several
  };

  /// Operands that peers may use where they are.
  struct Offer {
    SegmentPlace in, out;
    explicit operator bool() const { return in || out; }
  };

  /// The call that a member announces; peers compare it with their own call.
  struct Announcement {
    uint64_t job = 0;
    uint32_t epoch = 0;
    Offer offer;
    CallTerms terms; // its origin is the text below: memory that others see holds no pointer
    char origin[160] = {};
    CallTerms getTerms() const;
  };

  /// The shared state of a member.
  struct MemberSlot {
    Counter meetings;
    Announcement calls[2]; // of even and odd calls: a peer may still read the last one
  };
  /// From one member to another: two chunks that take turns.
  struct Channel {
    Counter sent, received;
    Announcement messages[2]; // of the message that the chunk begins
  };
  struct ChannelState {
    std::mutex sending, receiving;
    uint32_t sent = 0, received = 0;
  };

  /// The first element of part `index` of `total` elements cut in `parts`; parts begin on cache
  /// lines so that no two members write one.
  static size_t getPartBegin(size_t total, size_t parts, size_t index, size_t elementBytes);
  void enqueue(Stream &stream, Call call, const OpContext &op);
  void run(const Call &call);
  void runAlone(const Call &call);
  void runCollective(const Call &call);
  void runSend(const Call &call);
  void runRecv(const Call &call);

  /// Whether everybody reduces everything.
  bool isReducedAtOnce(const Call &call) const;
  void reduceAtOnce(const Call &call);
  void reduceByParts(const Call &call);
  void gather(const Call &call);
  void gatherMany(const Call &call);
  void scatterReduce(const Call &call);
  void exchange(const Call &call);
  void spread(const Call &call);

  /// Operands of no more bytes are better staged: that costs two copies and saves a meeting, of a
  /// call that takes one round the last.
  size_t getMostStaged() const { return chunk / 8; }
  /// The operands that peers may use where they are; none of calls that are better staged.
  Offer offer(const Call &call) const;
  /// Opens a call for which this member makes an offer. Does it and returns true where all members
  /// offer what it takes; else its pieces are yet to be staged.
  bool runDirectly(const Call &call);
  void reduceDirectly(const Call &call);
  void gatherDirectly(const Call &call);
  void scatterReduceDirectly(const Call &call);
  void exchangeDirectly(const Call &call);
  void spreadDirectly(const Call &call);
  const Offer &getOffer(int member) const;
  /// An operand of a member as this process sees it.
  std::byte *map(const SegmentPlace &place);

  Announcement announce(const Call &call) const;
  /// The first meeting of a call: all say what they call.
  void open(const Call &call);
  /// The first meeting after pieces were staged.
  void openStaged(const Call &call);
  /// Waits until all members have come here.
  void meet(const Call &call);
  void compareWith(const Call &call, const Announcement &mine, const Announcement &theirs,
                   int member);
  static void copyBytes(void *to, const void *from, size_t bytes) {
    if (bytes != 0 && to != from)
      std::memcpy(to, from, bytes);
  }

  size_t getRegionBytes() const;
  MemberSlot &getMember(int member) const;
  std::byte *getStage(int member, uint64_t round) const;
  Channel &getChannel(int from, int to) const;
  std::byte *getChannelChunk(int from, int to, uint32_t number) const;

  std::shared_ptr<Membership> membership;
  const std::vector<int> ranks;
  const int index;
  const std::string name;
  const size_t chunk;      // bytes
  const std::string group; // for messages
  RegionKey key;
  std::shared_ptr<Mapping> region;

  std::mutex collective;
  uint32_t meetings = 0; // passed
  // Staged. 32 bits would wrap after days, to the stage that peers may still read: three divide no
  // power of two.
  uint64_t rounds = 0;
  uint32_t calls = 0;
  // Of the call in progress:
  Offer offered;                                           // by this member
  bool isOffered = false;                                  // some member made an offer
  bool areInsShared = false;                               // all members offer their inputs
  bool areOutsShared = false;                              // and outputs
  std::map<uint64_t, std::shared_ptr<Mapping>> peerMemory; // by region
  std::vector<ChannelState> channels;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_LOCALCOMMUNICATOR_H
