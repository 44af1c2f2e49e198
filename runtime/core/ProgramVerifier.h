//===- ProgramVerifier.h - bounds of one program ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PROGRAMVERIFIER_H
#define GRIDLOOM_RUNTIME_CORE_PROGRAMVERIFIER_H

#include "runtime/core/DataType.h"
#include "runtime/core/plan.pb.h"

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace gridloom::rt {

class Plan;

/// Checks the buffers and steps of one program: a specialisation, or the prologue of one tensor.
class ProgramVerifier {
public:
  /// `what` names the program in messages that start with `file`.
  ProgramVerifier(const Plan &plan, const schema::Stage &stage, const std::string &file,
                  std::string what)
      : plan(plan), stage(stage), file(file), what(std::move(what)) {}

  void addInput(DataType type, uint64_t bytes) { inputs.push_back({type, bytes}); }
  void addOutput(DataType type, uint64_t bytes) { outputs.push_back({type, bytes}); }
  void verifySpecialisation(const schema::Specialisation &program);
  void verifyDerived(const schema::Derived &program);

private:
  using Buffers = google::protobuf::RepeatedPtrField<schema::Buffer>;
  using Body = google::protobuf::RepeatedPtrField<schema::Control>;
  using Indices = google::protobuf::RepeatedField<uint32_t>;

  void verifyBuffer(const schema::Buffer &buffer, size_t index);
  uint64_t getSpaceBytes(const schema::Buffer &buffer, const std::string &name);
  void verifyBody(const Body &body, uint64_t times, int depth);
  void verifyCondition(uint32_t condition);
  void verifyBlock(const schema::Block &block, bool repeated);
  void verifyStep(const schema::Step &step, const std::string &name, bool repeated);
  void verifyLaunch(const schema::Launch &launch, const std::string &name);
  void verifyLibrary(const schema::Library &call, const std::string &name);
  void verifyMatmul(const schema::Library &call, const std::string &name);
  void verifyConvolution(const schema::Library &call, const std::string &name);
  void verifyAttention(const schema::Library &call, const std::string &name);
  void verifyTypes(const schema::Library &call, schema::DataType type, const std::string &name);
  void verifyWorkspace(uint64_t limit, const std::string &name);
  void verifyWindow(const schema::Convolution &convolution, const std::string &name) const;
  /// Fails if two elements of an output are written to the same place.
  void verifyDistinct(const std::vector<int64_t> &sizes,
                      const google::protobuf::RepeatedField<int64_t> &strides,
                      const std::string &name) const;
  void verifyOperand(const std::vector<int64_t> &extents,
                     const google::protobuf::RepeatedField<int64_t> &strides, uint32_t buffer,
                     const std::string &name);
  void verifyCopy(const schema::Copy &copy, const std::string &name);
  void verifyGroup(const schema::Group &group, const std::string &name);
  void verifyGroupStream(const schema::Step &step, const std::string &name);
  void verifyCollective(const schema::Group &group, int64_t members, const std::string &name);
  const schema::Buffer &getBuffer(uint32_t index, const std::string &name) const;
  const schema::Buffer &getWritable(uint32_t index, const std::string &name) const;
  void requireCount(const Indices &indices, int count, const std::string &name,
                    const char *side) const;
  [[noreturn]] void fail(const std::string &message) const;

  struct Bound {
    DataType type;
    uint64_t bytes;
  };
  const Plan &plan;
  const schema::Stage &stage;
  const std::string &file;
  std::string what;
  std::vector<Bound> inputs, outputs;
  const Buffers *buffers = nullptr;
  std::vector<uint64_t> elements; // of each buffer's shape
  uint64_t arenaBytes = 0, registeredBytes = 0;
  std::vector<schema::Stream::Kind> streams;
  /// The stream of each communicator. Key: kind and peer stage of a transfer, or axes of a
  /// collective.
  std::map<std::tuple<int, uint32_t, std::vector<std::string>>, uint32_t> groupStreams;
  uint32_t numEvents = 0;
  bool isDerived = false;
  std::set<uint32_t> recorded, recordedAnywhere, waitedLater;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PROGRAMVERIFIER_H
