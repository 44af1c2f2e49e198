//===- StageCuts.cpp - cut points of pipeline stages ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/StageCuts.h"

#include "dialects/loom/Training.h"
#include "dialects/loom/Work.h"

using namespace mlir;
using namespace gridloom;

bool gridloom::isFloating(Operation *op) {
  return op->getNumOperands() == 0 || isa<loom::BroadcastOp>(op);
}

SmallVector<StateUse> gridloom::getStateUses(func::FuncOp func) {
  SmallVector<StateUse> uses;
  Operation *terminator = func.front().getTerminator();
  for (BlockArgument argument : func.getArguments())
    if (auto state = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState);
        state && !loom::isSentState(argument))
      for (Operation *user : argument.getUsers())
        if (user != terminator)
          uses.push_back({state, user});
  for (auto [i, value] : llvm::enumerate(terminator->getOperands()))
    if (auto state = func.getResultAttrOfType<StringAttr>(i, loom::kState))
      if (Operation *writer = value.getDefiningOp())
        uses.push_back({state, writer});
  return uses;
}

//===----------------------------------------------------------------------===//
// Profiles
//===----------------------------------------------------------------------===//

using Positions = llvm::DenseMap<Operation *, size_t>;

using Span = StageProfile::Span;

static void widen(std::optional<Span> &span, size_t at) {
  span = span ? Span{std::min(span->first, at), std::max(span->last, at)} : Span{at, at};
}

/// Widens `span` by the position of `op`, or by those of its readers if it is floating.
static void addPositions(Operation *op, const Positions &position, std::optional<Span> &span) {
  if (auto it = position.find(op); it != position.end())
    widen(span, it->second);
  else if (isFloating(op))
    for (Operation *user : op->getUsers())
      addPositions(user, position, span);
}

StageCosts gridloom::getUnsplitCosts(const dist::Mesh &mesh) {
  return {[&](Operation *op) { return loom::getComputeSeconds(op, mesh.getMachine()); },
          [](Value value) { return static_cast<double>(loom::getByteSize(value.getType())); }};
}

StageProfile::StageProfile(func::FuncOp func, const dist::Mesh &mesh, StringAttr stageAxis,
                           const StageCosts &costs)
    : occupiesSender(costs.occupiesSender) {
  Positions position;
  work.push_back(0);
  for (Operation &op : func.front().without_terminator()) {
    if (isFloating(&op))
      continue;
    position[&op] = anchored.size();
    anchored.push_back(&op);
    work.push_back(work.back() + costs.seconds(&op));
  }
  SmallVector<double> change(anchored.size() + 1, 0);
  for (auto [i, op] : llvm::enumerate(anchored))
    for (Value result : op->getResults()) {
      std::optional<Span> readers;
      for (Operation *user : result.getUsers())
        addPositions(user, position, readers);
      if (!readers || readers->last <= i)
        continue;
      double bytes = costs.bytes(result);
      change[i + 1] += bytes;
      change[readers->last + 1] -= bytes;
    }
  double alive = 0;
  // Every cut has the same latency; they differ only in how long they keep the link.
  auto send = [&](double bytes) {
    return mesh.getSeconds(cluster::Collective::Send, bytes, {stageAxis});
  };
  for (double delta : change)
    crossing.push_back(send(alive += delta) - send(0));

  auto note = [&](llvm::MapVector<StringAttr, Span> &spans, StringAttr name, Operation *op) {
    std::optional<Span> span;
    if (auto known = spans.find(name); known != spans.end())
      span = known->second;
    addPositions(op, position, span);
    if (span)
      spans[name] = *span;
  };
  for (const StateUse &use : getStateUses(func))
    note(states, use.state, use.op);
  for (auto weight : func.front().getOps<loom::GetWeightOp>())
    note(weights, weight.getNameAttr().getAttr(), weight);
}

//===----------------------------------------------------------------------===//
// One cut for all functions
//===----------------------------------------------------------------------===//

/// Allows for the rounding errors of sums.
static constexpr double kRounding = 1 + 1e-9;

namespace {
/// A position of each function where all of them may be cut.
using Cut = SmallVector<size_t>;

/// On which side of a cut something is used.
enum class Side { Before, Across, After };

/// The cuts that are possible, and the best choice among them.
class Cutter {
public:
  Cutter(ArrayRef<StageProfile> profiles, bool alignWeights)
      : profiles(profiles), alignWeights(alignWeights) {
    // Positions are those of the function with the most work: it gains most by a fine choice.
    for (size_t i = 1; i < profiles.size(); ++i)
      if (profiles[i].work.back() > profiles[leader].work.back())
        leader = i;
    for (const StageProfile &profile : profiles)
      guesses.push_back(guessPositions(profile));
    findCuts();
    prepare();
  }
  std::optional<StageStarts> choose(size_t stages) const;

private:
  SmallVector<size_t> guessPositions(const StageProfile &profile) const;
  double getLeast(size_t stages) const;
  std::optional<StageStarts> choose(size_t stages, double most) const;
  void findCuts();
  void prepare();
  std::optional<Cut> makeCut(size_t position) const;
  bool isLegal(const Cut &cut) const;
  bool isBefore(const Cut &a, const Cut &b) const {
    return llvm::all_of(llvm::zip_equal(a, b),
                        [](auto pair) { return std::get<0>(pair) < std::get<1>(pair); });
  }

  ArrayRef<StageProfile> profiles;
  bool alignWeights;
  size_t leader = 0;
  SmallVector<SmallVector<size_t>> guesses; // by function, then by the leader's position
  std::vector<Cut> cuts;                    // in order; the first and last are the functions' ends
  // By function and cut, relative to the function's own work; the leader's counts as it is.
  std::vector<std::vector<double>> work, sent;
  std::vector<size_t>
      numStarts; // by cut: how many of the first cuts may start a stage ending there
};
} // namespace

static Side getSide(StageProfile::Span span, size_t cut) {
  return span.last < cut ? Side::Before : span.first >= cut ? Side::After : Side::Across;
}

/// For each position of the leader the position in `profile` with the same ONNX nodes before it; if
/// the functions share no node, the one with the same share of the work.
SmallVector<size_t> Cutter::guessPositions(const StageProfile &profile) const {
  const StageProfile &first = profiles[leader];
  using Key = std::pair<std::string, size_t>; // a node, and which of its operations
  auto keysOf = [](const StageProfile &of) {
    std::map<std::string, size_t> count;
    std::vector<Key> keys;
    for (Operation *op : of.anchored) {
      std::string node = loom::getNodeName(op->getLoc());
      size_t number = count[node]++;
      keys.emplace_back(std::move(node), number);
    }
    return keys;
  };
  std::map<Key, size_t> known;
  for (auto [i, key] : llvm::enumerate(keysOf(first)))
    if (!key.first.empty())
      known.emplace(key, i);
  SmallVector<size_t> guess(first.anchored.size() + 1, 0);
  bool shared = false;
  for (auto [i, key] : llvm::enumerate(keysOf(profile)))
    if (auto it = known.find(key); it != known.end()) {
      guess[it->second + 1] = std::max(guess[it->second + 1], i + 1);
      shared = true;
    }
  for (size_t i = 1; i < guess.size(); ++i)
    guess[i] = std::max(guess[i], guess[i - 1]);
  if (!shared)
    for (size_t i = 1; i < guess.size(); ++i)
      guess[i] = std::distance(
          profile.work.begin(),
          llvm::lower_bound(profile.work, first.work[i] / first.work.back() * profile.work.back()));
  return guess;
}

/// The cut of all functions at one of the leader's positions.
std::optional<Cut> Cutter::makeCut(size_t position) const {
  const StageProfile &first = profiles[leader];
  Cut cut;
  for (auto [i, profile] : llvm::enumerate(profiles)) {
    if (i == leader) {
      cut.push_back(position);
      continue;
    }
    // A state or weight that both use has to be on the same side in both.
    size_t low = 0, high = profile.anchored.size();
    auto align = [&](const auto &mine, const auto &others) {
      for (auto &[name, span] : mine) {
        auto other = others.find(name);
        if (other == others.end())
          continue;
        Side side = getSide(span, position);
        if (side != Side::After)
          low =
              std::max(low, (side == Side::Before ? other->second.last : other->second.first) + 1);
        if (side != Side::Before)
          high = std::min(high, side == Side::After ? other->second.first : other->second.last);
      }
    };
    align(first.states, profile.states);
    if (alignWeights)
      align(first.weights, profile.weights);
    if (low > high)
      return std::nullopt;
    cut.push_back(std::clamp(guesses[i][position], low, high));
  }
  return isLegal(cut) ? std::optional(cut) : std::nullopt;
}

/// Whether no state is used across the cut, and nothing is on different sides in two functions.
bool Cutter::isLegal(const Cut &cut) const {
  llvm::DenseMap<Attribute, Side> sides;
  auto agrees = [&](const auto &spans, size_t at, bool mayCross) {
    return llvm::all_of(spans, [&](const auto &entry) {
      Side side = getSide(entry.second, at);
      return (mayCross || side != Side::Across) &&
             sides.try_emplace(entry.first, side).first->second == side;
    });
  };
  for (auto [profile, at] : llvm::zip_equal(profiles, cut))
    if (!agrees(profile.states, at, /*mayCross=*/false))
      return false;
  if (!alignWeights || profiles.size() == 1)
    return true;
  sides.clear();
  return llvm::all_of(llvm::zip_equal(profiles, cut), [&](auto pair) {
    return agrees(std::get<0>(pair).weights, std::get<1>(pair), /*mayCross=*/true);
  });
}

void Cutter::findCuts() {
  cuts.push_back(Cut(profiles.size(), 0));
  for (size_t position = 1; position < profiles[leader].anchored.size(); ++position)
    if (std::optional<Cut> cut = makeCut(position))
      cuts.push_back(*cut);
  cuts.push_back(
      llvm::map_to_vector(profiles, [](const StageProfile &p) { return p.anchored.size(); }));
}

void Cutter::prepare() {
  for (auto [i, profile] : llvm::enumerate(profiles)) {
    double own = profile.work.back();
    double scale = own > 0 ? profiles[leader].work.back() / own : 0;
    work.emplace_back();
    sent.emplace_back();
    for (const Cut &cut : cuts) {
      work.back().push_back(scale * profile.work[cut[i]]);
      bool isEnd = cut[i] == 0 || cut[i] == profile.anchored.size();
      sent.back().push_back(isEnd ? 0 : scale * profile.crossing[cut[i]]);
    }
  }
  // Positions increase from cut to cut, so those that precede a cut in all functions come first.
  for (size_t end = 0, starts = 0; end < cuts.size(); ++end) {
    while (starts < end && isBefore(cuts[starts], cuts[end]))
      ++starts;
    numStarts.push_back(starts);
  }
}

/// A lower bound on the slowest of `stages`: the mean of their work.
double Cutter::getLeast(size_t stages) const {
  double least = 0;
  for (const std::vector<double> &own : work)
    least = std::max(least, own.back() / static_cast<double>(stages));
  return least;
}

/// Dynamic programming over the cuts whose slowest stage takes at most `most`.
std::optional<StageStarts> Cutter::choose(size_t stages, double most) const {
  size_t n = cuts.size() - 1;
  using Cost = std::pair<double, double>; // of the slowest stage, of all that is sent
  constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<Cost> last(n + 1, {infinite, infinite}), next;
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(n + 1, 0));
  auto workOf = [&](size_t start, size_t end) {
    double seconds = 0;
    for (const std::vector<double> &own : work)
      seconds = std::max(seconds, own[end] - own[start]);
    return seconds;
  };
  last[0] = {0, 0};
  for (size_t stage = 1; stage <= stages; ++stage) {
    next.assign(n + 1, {infinite, infinite});
    // Bounds on the work before the end of this stage, and on the work after it.
    double room = kRounding * most * static_cast<double>(stage);
    double roomAfter = kRounding * most * static_cast<double>(stages - stage);
    size_t first = n;
    while (first > stage && workOf(first - 1, n) <= roomAfter)
      --first;
    for (size_t end = std::max(first, stage); end <= n && workOf(0, end) <= room; ++end)
      // An earlier start makes a stage longer; of equal costs the earliest start wins.
      for (size_t start = numStarts[end]; start-- > stage - 1;) {
        double own = workOf(start, end);
        if (own > std::min(most, next[end].first))
          break;
        Cost cost = last[start];
        for (size_t i = 0; i < profiles.size(); ++i) {
          double transfers = sent[i][start] + (profiles[i].occupiesSender ? sent[i][end] : 0);
          cost.first = std::max(cost.first, work[i][end] - work[i][start] + transfers);
          cost.second += sent[i][start];
        }
        if (cost.first <= most && cost <= next[end]) {
          next[end] = cost;
          from[stage][end] = start;
        }
      }
    last.swap(next);
  }
  if (last[n].first == infinite)
    return std::nullopt;
  StageStarts starts(profiles.size(), SmallVector<size_t>(stages));
  for (size_t stage = stages, end = n; stage > 0; --stage) {
    end = from[stage][end];
    for (auto [i, list] : llvm::enumerate(starts))
      list[stage - 1] = cuts[end][i];
  }
  return starts;
}

/// The cuts whose slowest stage is fastest, and of these those that send least. Tries tight limits
/// first: most programs can be cut nearly evenly, and few cuts are so even.
std::optional<StageStarts> Cutter::choose(size_t stages) const {
  double least = getLeast(stages);
  for (double factor = 1.0625; least > 0 && factor < static_cast<double>(stages);
       factor = 1 + 2 * (factor - 1))
    if (std::optional<StageStarts> starts = choose(stages, factor * least))
      return starts;
  return choose(stages, std::numeric_limits<double>::max());
}

std::optional<StageStarts> gridloom::chooseCuts(ArrayRef<StageProfile> profiles, size_t stages) {
  for (bool alignWeights : {true, false})
    if (std::optional<StageStarts> starts = Cutter(profiles, alignWeights).choose(stages))
      return starts;
  // Functions without states may be cut independently.
  if (llvm::any_of(profiles, [](const StageProfile &p) { return !p.states.empty(); }))
    return std::nullopt;
  StageStarts starts;
  for (const StageProfile &profile : profiles) {
    std::optional<StageStarts> own = Cutter(profile, /*alignWeights=*/false).choose(stages);
    if (!own)
      return std::nullopt;
    starts.push_back(own->front());
  }
  return starts;
}
