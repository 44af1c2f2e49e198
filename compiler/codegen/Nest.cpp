//===- Nest.cpp - loop nests of a kernel ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Nest.h"
#include "compiler/codegen/BodyEmitter.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

const Loop &Nest::loopOf(AtomId atom) const {
  for (const Loop &loop : outer)
    if (loop.contains(atom))
      return loop;
  for (const Loop &loop : inner)
    if (loop.contains(atom))
      return loop;
  llvm_unreachable("every loop atom is in a loop");
}

//===----------------------------------------------------------------------===//
// Order and collapsing
//===----------------------------------------------------------------------===//

/// Output atoms in loop order: those that more reductions depend on are further out, so that
/// reductions are computed once per row.
static SmallVector<AtomId> orderAtoms(const Body &body) {
  SmallVector<AtomId> order = llvm::to_vector(ArrayRef<AtomId>(body.outerAtoms));
  auto uses = [&](AtomId atom) {
    return llvm::count_if(body.nodes, [&](const Node &node) {
      return node.kind == Node::Kind::Reduce && contains(node.free, atom);
    });
  };
  llvm::sort(order, [&](AtomId a, AtomId b) {
    return std::make_pair(-uses(a), a) < std::make_pair(-uses(b), b);
  });
  return order;
}

/// True if loops over `major` and `minor` can be one loop.
static bool canCollapse(const Body &body, AtomId major, AtomId minor) {
  auto fits = [&](const Linear &index) {
    return index.coefficient(major) == index.coefficient(minor) * body.atoms[minor].size;
  };
  for (AtomId id = 0; id < body.atoms.size(); ++id)
    if (!fits(body.atoms[id].argument))
      return false;
  for (const Store &store : body.stores)
    if (!fits(store.index))
      return false;
  for (const Node &node : body.nodes)
    if (!fits(node.index) || contains(node.bound, major) != contains(node.bound, minor))
      return false;
  return true;
}

static SmallVector<Loop> makeLoops(const Body &body, ArrayRef<AtomId> order) {
  SmallVector<Loop> loops;
  for (AtomId atom : order) {
    if (loops.empty() || !canCollapse(body, loops.back().atoms.back(), atom))
      loops.emplace_back();
    loops.back().atoms.push_back(atom);
    loops.back().extent *= body.atoms[atom].size;
  }
  return loops;
}

/// True if vectors along the outputs would slow down more loads than they speed up.
static bool findReducesContiguous(const Nest &nest, const Body &body) {
  if (nest.contiguous < 0)
    return false;
  AtomSet bound;
  for (const Node &node : body.nodes)
    unite(bound, node.bound);
  AtomId last = nest.outer[nest.contiguous].atoms.back();
  double slow = 0, fast = 0;
  for (const Node &node : body.nodes) {
    if (node.kind != Node::Kind::Load || !contains(node.free, last) ||
        !intersects(node.free, bound))
      continue;
    double times = 1;
    for (AtomId atom : node.free)
      times *= static_cast<double>(body.atoms[atom].size);
    bool alongBound = llvm::any_of(node.index.terms, [&](const auto &term) {
      return term.second == 1 && term.first != last && contains(bound, term.first);
    });
    if (node.index.coefficient(last) == 1)
      fast += times;
    else if (alongBound)
      slow += times;
  }
  return slow > fast;
}

static Nest makeNest(std::unique_ptr<Body> body) {
  Nest nest;
  nest.outer = makeLoops(*body, orderAtoms(*body));
  nest.inner = makeLoops(*body, body->innerAtoms);
  // There may be none: a part of a concatenation may be one element wide.
  for (auto [i, loop] : llvm::enumerate(nest.outer))
    if (llvm::all_of(body->stores, [&, last = loop.atoms.back()](const Store &store) {
          return store.index.coefficient(last) == 1;
        }))
      nest.contiguous = i;
  nest.reducesContiguous = findReducesContiguous(nest, *body);
  nest.body = std::move(body);
  return nest;
}

SmallVector<Nest> gridloom::codegen::buildNests(plan::KernelOp kernel) {
  // More parts are not worth their code: the body then chooses its source element by element.
  constexpr size_t kMaxParts = 32;
  auto yield = cast<loom::YieldOp>(kernel.getBody().front().getTerminator());
  llvm::MapVector<ArrayRef<int64_t>, SmallVector<unsigned>> byShape;
  for (auto [i, type] : llvm::enumerate(yield.getOperandTypes()))
    if (cast<RankedTensorType>(type).getNumElements() > 0)
      byShape[cast<RankedTensorType>(type).getShape()].push_back(i);

  SmallVector<Nest> nests;
  for (auto &[shape, outputs] : byShape) {
    NestSpec whole;
    for (int64_t size : shape)
      whole.outer.push_back(DimSpec::whole(size));
    SmallVector<NestSpec> work{whole};
    size_t parts = 1;
    while (!work.empty()) {
      NestSpec spec = work.pop_back_val();
      auto body = std::make_unique<Body>(kernel, outputs, spec);
      SmallVector<NestSpec> better = body->improve(spec);
      if (better.empty() || parts + better.size() > kMaxParts) {
        nests.push_back(makeNest(std::move(body)));
        continue;
      }
      parts += better.size() - 1;
      work.append(better.rbegin(), better.rend());
    }
  }
  return nests;
}

//===----------------------------------------------------------------------===//
// Description
//===----------------------------------------------------------------------===//

plan::Skeleton gridloom::codegen::classify(ArrayRef<Nest> nests) {
  bool reduces = false, gathers = false, transposes = false, chooses = false;
  for (const Nest &nest : nests) {
    AtomId last = nest.contiguous < 0 ? ~0u : nest.outer[nest.contiguous].atoms.back();
    for (AtomId id = 0; id < nest.body->atoms.size(); ++id)
      gathers |= nest.body->atoms[id].kind == Atom::Kind::Loaded;
    for (const Node &node : nest.body->nodes) {
      reduces |= node.kind == Node::Kind::Reduce;
      chooses |= node.kind == Node::Kind::Choose;
      // Loads that do not depend on the contiguous loop do not count.
      transposes |= node.kind == Node::Kind::Load && last != ~0u && contains(node.free, last) &&
                    node.index.coefficient(last) != 1;
    }
  }
  if (chooses)
    return plan::Skeleton::General;
  if (reduces)
    return plan::Skeleton::Row;
  if (gathers)
    return plan::Skeleton::Gather;
  return transposes ? plan::Skeleton::Transpose : plan::Skeleton::Elementwise;
}

/// Elements of a buffer that the nests read, such as some rows of a table.
static int64_t countRead(ArrayRef<Nest> nests, unsigned buffer) {
  int64_t count = 0, whole = nests[0].body->buffers[buffer].elements;
  for (const Nest &nest : nests)
    for (const Node &node : nest.body->nodes) {
      if (node.kind != Node::Kind::Load || node.buffer != buffer)
        continue;
      int64_t places = 1;
      for (AtomId atom : node.free)
        places = std::min(places * nest.body->atoms[atom].size, whole);
      count = std::min(count + places, whole);
    }
  return count;
}

KernelInfo gridloom::codegen::describeKernel(plan::KernelOp kernel, ArrayRef<Nest> nests) {
  KernelInfo info;
  Block &block = kernel.getBody().front();
  Operation *yield = block.getTerminator();
  info.symbol = kernel.getSymName().str();
  info.numPointers = block.getNumArguments() + yield->getNumOperands();
  info.skeleton = classify(nests);
  for (auto [i, type] : llvm::enumerate(block.getArgumentTypes())) {
    int64_t elements = cast<RankedTensorType>(type).getNumElements();
    int64_t bytes = loom::getByteSize(type);
    info.bytes += nests.empty() || elements == 0 ? bytes : bytes / elements * countRead(nests, i);
  }
  for (Type type : yield->getOperandTypes())
    info.bytes += loom::getByteSize(type);
  // Assumes that a scatter works in place: it touches only updates, indices and their targets.
  if (auto scatter = dyn_cast<loom::ScatterOp>(block.front()))
    info.bytes = 2 * loom::getByteSize(scatter.getUpdates().getType()) +
                 loom::getByteSize(scatter.getIndices().getType());
  block.walk([&](loom::CostInterface op) { info.flops += op.getFlops(); });
  if (kernel.getInPlace())
    for (auto pair : kernel.getInPlace()->getAsRange<plan::InPlaceAttr>())
      info.inPlace.emplace_back(pair.getOutput(), pair.getInput());
  return info;
}

std::string gridloom::codegen::kernelTitle(plan::KernelOp kernel) {
  SmallVector<std::string> names;
  kernel.getBody().walk([&](Operation *op) {
    std::string name = loom::getNodeName(op->getLoc());
    if (!name.empty() && !llvm::is_contained(names, name))
      names.push_back(name);
  });
  std::string title = "kernel " + kernel.getSymName().str();
  if (!names.empty())
    title += " (ONNX nodes " + llvm::join(names, ", ") + ")";
  return title;
}
