//===- ProgramSimulator.h - runs programs in any allowed order ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Executes the programs of all stages together, streams at random speeds, and watches memory: from
// the start of a step to its end, each input must hold what its writer of the same iteration wrote.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_PROGRAMSIMULATOR_H
#define GRIDLOOM_TEST_UNIT_PROGRAMSIMULATOR_H

#include "dialects/plan/Plan.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gridloom::testing {

class ProgramSimulator {
public:
  explicit ProgramSimulator(std::mt19937 &random) : random(random) {}

  /// Runs all programs to the end. Returns the first error, or an empty string.
  std::string run(llvm::ArrayRef<plan::ProgramOp> programs) {
    for (plan::ProgramOp program : programs) {
      stages.emplace_back().program = program;
      submit(program.getBody().front(), 0, stages.back());
    }
    while (true) {
      std::vector<std::pair<unsigned, unsigned>> open;
      for (unsigned i = 0; i < stages.size(); ++i)
        for (unsigned j = 0; j < stages[i].streams.size(); ++j)
          if (stages[i].streams[j].head < stages[i].streams[j].items.size())
            open.push_back({i, j});
      if (open.empty() || !error.empty())
        return error;
      // Streaks of one stream let it overtake the others.
      std::shuffle(open.begin(), open.end(), random);
      bool moved = false;
      for (auto [i, j] : open) {
        unsigned luck = 1 + random() % 6;
        while (luck-- && error.empty() && advance(i, j))
          moved = true;
        if (moved)
          break;
      }
      if (!moved)
        return "deadlock";
    }
  }

private:
  struct Item {
    mlir::Operation *op;
    int64_t iteration;
  };
  struct Stream {
    plan::StreamAttr stream;
    std::vector<Item> items;
    size_t head = 0;
    bool running = false;
  };
  /// The last writer of a piece of memory; null while it is being written.
  using Tag = std::pair<mlir::Operation *, int64_t>;
  struct Stage {
    plan::ProgramOp program;
    std::vector<Stream> streams;
    std::set<std::pair<int64_t, int64_t>> events;  // id, iteration
    std::map<std::pair<int, int64_t>, Tag> memory; // space, 64-byte piece
  };

  static mlir::Operation *getRoot(mlir::Value buffer) {
    mlir::Operation *op = buffer.getDefiningOp();
    while (auto alias = llvm::dyn_cast<plan::AliasOp>(op))
      op = alias.getSource().getDefiningOp();
    return op;
  }

  void submit(mlir::Block &block, int64_t iteration, Stage &stage) {
    for (mlir::Operation &op : block) {
      if (auto inner = llvm::dyn_cast<plan::BlockOp>(op)) {
        submit(inner.getBody().front(), iteration, stage);
      } else if (auto repeat = llvm::dyn_cast<plan::RepeatOp>(op)) {
        for (int64_t i = 0; i < static_cast<int64_t>(repeat.getCount()); ++i)
          submit(repeat.getBody().front(), i, stage);
      } else if (auto attr = op.getAttrOfType<plan::StreamAttr>("stream")) {
        auto it =
            llvm::find_if(stage.streams, [&](Stream &stream) { return stream.stream == attr; });
        if (it == stage.streams.end()) {
          Stream stream;
          stream.stream = attr;
          it = stage.streams.insert(stage.streams.end(), stream);
        }
        it->items.push_back({&op, iteration});
      }
    }
  }

  /// The 64-byte pieces of arena and registered memory that a buffer covers in an iteration.
  std::vector<std::pair<int, int64_t>> getPieces(mlir::Value value, int64_t iteration) {
    auto buffer = llvm::dyn_cast<plan::BufferOp>(getRoot(value));
    if (!buffer ||
        (buffer.getSpace() != plan::Space::Arena && buffer.getSpace() != plan::Space::Registered))
      return {};
    int64_t bytes = *buffer.getBytes(), slots = buffer.getSlots();
    int64_t from = *buffer.getOffset() + iteration % slots * bytes;
    std::vector<std::pair<int, int64_t>> pieces;
    for (int64_t piece = from / 64; piece * 64 < from + bytes; ++piece)
      pieces.push_back({static_cast<int>(buffer.getSpace()), piece});
    return pieces;
  }

  static mlir::SmallVector<mlir::Value> getOperands(mlir::Operation *op, llvm::StringRef which) {
    auto pick = [&](auto step) {
      return which == "inputs" ? llvm::to_vector_of<mlir::Value>(step.getInputs())
                               : llvm::to_vector_of<mlir::Value>(step.getOutputs());
    };
    return llvm::TypeSwitch<mlir::Operation *, mlir::SmallVector<mlir::Value>>(op)
        .Case<plan::LaunchOp, plan::LibraryOp, plan::CopyOp, plan::GroupOp>(pick);
  }

  /// True if the step may overwrite this input: a kernel that runs in place on exactly this memory.
  bool isInPlace(mlir::Operation *op, mlir::Value input, int64_t iteration) {
    auto launch = llvm::dyn_cast<plan::LaunchOp>(op);
    if (!launch)
      return false;
    auto kernel =
        mlir::SymbolTable::lookupNearestSymbolFrom<plan::KernelOp>(op, launch.getKernelAttr());
    auto number = llvm::find(launch.getInputs(), input) - launch.getInputs().begin();
    return kernel.canRunInPlace(/*output=*/0, number) &&
           getPieces(input, iteration) == getPieces(launch.getOutputs()[0], iteration);
  }

  void check(Item item, Stage &stage, llvm::StringRef when) {
    for (mlir::Value input : getOperands(item.op, "inputs")) {
      if (when == "end" && isInPlace(item.op, input, item.iteration))
        continue;
      for (auto piece : getPieces(input, item.iteration))
        if (stage.memory[piece] != Tag(getRoot(input), item.iteration)) {
          llvm::raw_string_ostream stream(error);
          stream << "stage " << stage.program.getStage() << " iteration " << item.iteration
                 << " at its " << when << " misses an input: " << *item.op;
          return;
        }
    }
  }

  void begin(Item item, Stage &stage) {
    check(item, stage, "start");
    for (mlir::Value output : getOperands(item.op, "outputs"))
      for (auto piece : getPieces(output, item.iteration))
        stage.memory[piece] = Tag();
  }

  void end(Item item, Stage &stage) {
    check(item, stage, "end");
    for (mlir::Value output : getOperands(item.op, "outputs"))
      for (auto piece : getPieces(output, item.iteration)) {
        // Another writer in between would have replaced the tag.
        if (stage.memory[piece] != Tag() && error.empty())
          error = "two steps write the same memory at once";
        stage.memory[piece] = Tag(getRoot(output), item.iteration);
      }
  }

  /// The peer's stream that waits at the other end of a transfer.
  Stream *findPartner(Stage &stage, Item item, Stage *&peer) {
    auto group = llvm::cast<plan::GroupOp>(item.op);
    for (Stage &other : stages) {
      if (other.program.getStage() != *group.getStage())
        continue;
      peer = &other;
      for (Stream &stream : other.streams) {
        auto head = stream.head < stream.items.size()
                        ? llvm::dyn_cast<plan::GroupOp>(stream.items[stream.head].op)
                        : plan::GroupOp();
        if (head && head.getStage() == stage.program.getStage() &&
            head.getChannel() == group.getChannel() && head.getKind() != group.getKind())
          return &stream;
      }
    }
    return nullptr;
  }

  bool advance(unsigned stageIndex, unsigned streamIndex) {
    Stage &stage = stages[stageIndex];
    Stream &stream = stage.streams[streamIndex];
    if (stream.head >= stream.items.size())
      return false;
    Item item = stream.items[stream.head];
    if (auto record = llvm::dyn_cast<plan::RecordOp>(item.op)) {
      stage.events.insert({record.getEvent(), item.iteration});
      ++stream.head;
      return true;
    }
    if (auto wait = llvm::dyn_cast<plan::WaitOp>(item.op)) {
      int64_t recorded = item.iteration - static_cast<int64_t>(wait.getLag());
      if (recorded >= 0 && !stage.events.count({wait.getEvent(), recorded}))
        return false;
      ++stream.head;
      return true;
    }
    auto group = llvm::dyn_cast<plan::GroupOp>(item.op);
    Stage *peer = nullptr;
    Stream *partner = nullptr;
    if (group && group.getStage()) {
      partner = findPartner(stage, item, peer);
      if (!partner)
        return false;
    }
    if (!stream.running) {
      begin(item, stage);
      stream.running = true;
      if (partner) {
        begin(partner->items[partner->head], *peer);
        partner->running = true;
      }
      return true;
    }
    end(item, stage);
    stream.running = false;
    ++stream.head;
    if (partner) {
      end(partner->items[partner->head], *peer);
      partner->running = false;
      ++partner->head;
    }
    return true;
  }

  std::mt19937 &random;
  std::vector<Stage> stages;
  std::string error;
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_PROGRAMSIMULATOR_H
