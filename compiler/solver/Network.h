//===- Network.h - the folded problem in flat arrays ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_NETWORK_H
#define GRIDLOOM_SOLVER_NETWORK_H

#include "compiler/solver/Model.h"

namespace gridloom::solver {

/// least[column] = the least, over rows, of matrix[row][column] + added[row]; `matrix` is
/// row-major.
void getLeastSums(const double *matrix, const double *added, size_t rows, size_t columns,
                  double *least);

/// What is left of a problem after folding, in flat arrays for the loops that run over it. Costs
/// are floating point; a forbidden choice costs more than all others can save.
struct Network {
  explicit Network(const Model &model);

  struct Link {
    uint32_t node; // the neighbour
    uint32_t edge;
    uint32_t back;   // the neighbour's link to this node
    size_t matrixAt; // in `matrices`: a row of own strategies for each of the neighbour's; links of
                     // equal tables share one
  };
  struct Span { // of the time line
    uint32_t begin, end;
    size_t usageAt; // in `usages`, by strategy
  };

  size_t getNumNodes() const { return size.size(); }
  std::span<const Link> getLinks(uint32_t node) const {
    return {links.data() + linksAt[node], linksAt[node + 1] - linksAt[node]};
  }
  std::span<const Span> getSpans(uint32_t node) const {
    return {spans.data() + spansAt[node], spansAt[node + 1] - spansAt[node]};
  }
  /// The costs of the node's strategies if the neighbour of `link` has this one.
  const double *getRow(const Link &link, uint32_t node, uint32_t neighbourStrategy) const {
    return matrices.data() + link.matrixAt + size_t(neighbourStrategy) * size[node];
  }
  /// For each strategy of the link's neighbour, the least sum of the link's cost and what is added
  /// to a strategy of `node`.
  void getLeastSums(const Link &link, uint32_t node, const double *added, double *least) const {
    // The neighbour's matrix has a row for each strategy of the node.
    const Link &back = links[linksAt[link.node] + link.back];
    solver::getLeastSums(matrices.data() + back.matrixAt, added, size[node], size[link.node],
                         least);
  }
  /// The memory of a node's strategy at a time.
  int64_t getUsage(uint32_t node, uint32_t strategy, uint32_t time) const;

  double getCost(const std::vector<uint32_t> &chosen) const;
  /// The problem's strategies for a choice, as Folding::unfold takes them.
  Assignment toProblem(const std::vector<uint32_t> &chosen, const Model &model) const;
  /// The reverse. A node whose strategy was folded away gets the cheapest beside those of its
  /// neighbours that are known.
  std::vector<uint32_t> fromProblem(const Assignment &assignment, const Model &model) const;

  std::vector<uint32_t> problemNode;
  std::vector<uint32_t> size;  // strategies of each node
  std::vector<size_t> costsAt; // of each node, and the end, in `costs`
  std::vector<double> costs;
  std::vector<size_t> linksAt, spansAt; // of each node, and the end
  std::vector<Link> links;
  std::vector<double> matrices;
  std::vector<Span> spans;
  std::vector<int64_t> usages;
  std::vector<int64_t> limits; // of each time
  size_t numEdges = 0, numEntries = 0;
  double constant = 0;  // cost of what was folded
  double mostCost = 0;  // the most that allowed choices cost; all others cost more
  double forbidden = 0; // the cost of a choice that is not allowed

private:
  Cost addBounds(const std::vector<Cost> &table);
  void addLinks(const Model &model, const std::vector<uint32_t> &toNetwork);
  uint32_t getCheapest(uint32_t node, const std::vector<uint32_t> &chosen) const;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_NETWORK_H
