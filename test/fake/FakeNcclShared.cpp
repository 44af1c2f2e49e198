//===- FakeNcclShared.cpp - the fake NCCL between processes ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// If GRIDLOOM_FAKE_NCCL_FOLDER names a folder, ranks are processes that meet there: for each
// operation each rank writes a file with its operands, and computes its own result once all files
// exist. Slow, but enough to test how the others react when a process dies.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeNcclState.h"
#include "test/fake/FakeReduce.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace fs = std::filesystem;

namespace gridloom::fake {

std::string getSharedFolder(const std::string &id) {
  const char *base = std::getenv("GRIDLOOM_FAKE_NCCL_FOLDER");
  if (!base || !*base)
    return "";
  fs::path folder = fs::path(base) / id;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder.string();
}

static fs::path getFile(const Clique &clique, const std::string &name, int rank) {
  return fs::path(clique.folder) / (name + "." + std::to_string(rank));
}

/// Other processes see the whole file or none.
static void write(const fs::path &path, const std::string &bytes) {
  fs::path draft = path;
  draft += ".draft";
  std::ofstream(draft, std::ios::binary) << bytes;
  std::error_code ignored;
  fs::rename(draft, path, ignored);
}

static bool read(const fs::path &path, std::string &bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return false;
  bytes.assign(std::istreambuf_iterator<char>(file), {});
  return true;
}

bool meetShared(const Comm &comm, const std::string &name, const std::string &mark,
                std::vector<std::string> &all) {
  fs::path own = getFile(*comm.clique, name, comm.rank);
  if (!fs::exists(own))
    write(own, mark);
  for (int rank = 0; rank < comm.clique->size; ++rank)
    if (!read(getFile(*comm.clique, name, rank), all.emplace_back()))
      return false;
  return true;
}

void leaveShared(const Comm &comm) {
  std::vector<std::string> marks;
  std::error_code ignored;
  if (!comm.clique->folder.empty() && meetShared(comm, "left", "", marks))
    fs::remove_all(comm.clique->folder, ignored);
}

/// A request's first line describes it; its operand follows.
static std::string pack(const Request &request, int size) {
  size_t bytes = request.count * getTypeBytes(request.type);
  if (request.kind == Kind::ReduceScatter || request.kind == Kind::AllToAll)
    bytes *= static_cast<size_t>(size);
  std::string text = request.describe() + "\n";
  if (request.in)
    text.append(static_cast<const char *>(request.in), bytes);
  return text;
}

/// The sender writes its operand and waits until the receiver has taken it.
static bool runTransfer(Part &part) {
  const Comm &comm = *part.comm;
  bool sends = part.slot == 0;
  const Request &request = *part.node->requests[part.slot];
  int peer = request.extra;
  std::string name = "transfer" + std::to_string(part.index) + "." +
                     std::to_string(sends ? comm.rank : peer) + ">";
  fs::path message = getFile(*comm.clique, name, sends ? peer : comm.rank), taken = message;
  taken += ".taken";
  if (sends) {
    if (!part.arrived)
      write(message, pack(request, 2));
    part.arrived = true;
    return fs::exists(taken);
  }
  std::string text;
  if (!read(message, text))
    return false;
  size_t begin = text.find('\n') + 1, bytes = request.count * getTypeBytes(request.type);
  if (text.size() - begin != bytes) {
    machine().report(part.node->name + ": " + text.substr(0, begin - 1) + " meets " +
                     request.describe());
    part.comm->error = InvalidUsage;
    return false;
  }
  std::memcpy(request.out, text.data() + begin, bytes);
  write(taken, "");
  std::error_code ignored;
  fs::remove(message, ignored);
  return true;
}

static bool runCollective(Part &part) {
  const Comm &comm = *part.comm;
  Clique &clique = *comm.clique;
  const Request &own = *part.node->requests[part.slot];
  std::string name = "operation" + std::to_string(part.index);
  std::vector<std::string> all;
  if (!part.arrived)
    write(getFile(clique, name, comm.rank), pack(own, clique.size));
  part.arrived = true;
  for (int rank = 0; rank < clique.size; ++rank)
    if (!read(getFile(clique, name, rank), all.emplace_back()))
      return false;
  Node node;
  node.requests.assign(all.size(), own);
  std::vector<std::vector<std::byte>> results(all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    size_t begin = all[rank].find('\n') + 1;
    if (all[rank].compare(0, begin - 1, own.describe()) != 0) {
      machine().report("rank " + std::to_string(rank) + " calls " + all[rank].substr(0, begin - 1) +
                       " where rank " + std::to_string(comm.rank) + " calls " + own.describe());
      part.comm->error = InvalidUsage;
      return false;
    }
    Request &request = *node.requests[rank];
    request.in = all[rank].data() + begin;
    if (rank != part.slot) {
      results[rank].resize(own.count * getTypeBytes(own.type) * all.size());
      request.out = results[rank].data();
    }
  }
  compute(node);
  // A rank that has got here has finished the operation before.
  std::error_code ignored;
  if (part.index > 0)
    fs::remove(getFile(clique, "operation" + std::to_string(part.index - 1), comm.rank), ignored);
  return true;
}

bool runShared(Part &part) {
  return part.node->requests[part.slot]->isTransfer() ? runTransfer(part) : runCollective(part);
}

} // namespace gridloom::fake
