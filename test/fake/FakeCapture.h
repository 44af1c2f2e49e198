//===- FakeCapture.h - work recorded instead of run -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKECAPTURE_H
#define GRIDLOOM_TEST_FAKE_FAKECAPTURE_H

#include "test/fake/FakeMachine.h"

namespace gridloom::fake {

/// Work submitted to a stream between cuStreamBeginCapture and cuStreamEndCapture, and to the
/// streams that waited for it. Once ended it is a graph, which no longer changes.
struct Capture {
  struct Node {
    Stream *stream;
    Operation operation;
    std::vector<size_t> after; // nodes that must be done before
  };

  int device = 0;
  Stream *origin = nullptr;
  int mode = 0;
  std::thread::id thread;
  bool open = true;
  bool valid = true;
  std::vector<Node> nodes;
  struct ByNumber {
    bool operator()(const Stream *x, const Stream *y) const { return x->number < y->number; }
  };
  /// The nodes that the next node of each stream must follow.
  std::map<Stream *, std::vector<size_t>, ByNumber> tails;

  /// Whether `node` is one of `from` or precedes one of them.
  bool isBefore(size_t node, const std::vector<size_t> &from) const;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKECAPTURE_H
