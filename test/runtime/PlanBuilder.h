//===- PlanBuilder.h - plans for tests ------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Builds small plans, valid and damaged, in a temporary folder.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_PLANBUILDER_H
#define GRIDLOOM_TEST_RUNTIME_PLANBUILDER_H

#include "runtime/core/DataType.h"
#include "runtime/core/plan.pb.h"
#include "support/Sha256.h"
#include "support/TemporaryFolder.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gridloom::test {

inline void writeFile(const std::filesystem::path &path, const std::string &contents) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << contents;
}

inline std::string toBytes(const std::vector<float> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float)};
}

/// A plan under construction: tests edit the manifest and stages, and `write` adds valid checksums.
class PlanBuilder {
public:
  explicit PlanBuilder(int numStages = 1) : stages(size_t(numStages)) {
    using nlohmann::json;
    manifest = {{"schema", {{"major", 2}, {"minor", 0}}},
                {"producer", "test"},
                {"requires", {"cpu"}},
                {"target", {{"kind", "cpu"}, {"arch", "x86-64"}}},
                {"mesh", {{"axes", json::array()}}},
                {"microbatches", 1},
                {"stages", json::array()},
                {"entries", json::array()},
                {"weights", json::array()},
                {"folded", json::array()},
                {"files", json::object()}};
    for (size_t i = 0; i < stages.size(); ++i) {
      stages[i].set_stage(uint32_t(i));
      manifest["stages"].push_back("stage" + std::to_string(i) + ".pb");
    }
  }

  void addAxis(const std::string &name, int size) {
    manifest["mesh"]["axes"].push_back({{"name", name}, {"size", size}});
  }
  void setStageAxis(const std::string &name) { manifest["mesh"]["stage_axis"] = name; }

  /// Appends an f32 weight to the model file.
  void addWeight(const std::string &name, const std::vector<int64_t> &shape,
                 const std::vector<float> &values) {
    manifest["weights"].push_back({{"name", name},
                                   {"type", "f32"},
                                   {"shape", shape},
                                   {"file", ""},
                                   {"offset", model.size()},
                                   {"bytes", values.size() * sizeof(float)}});
    model += toBytes(values);
  }

  /// An f32 state, split over `axes` (per dimension) into parts of shape `local`.
  static schema::State &addState(schema::Stage &stage, const std::string &name,
                                 const std::vector<int64_t> &global,
                                 const std::vector<int64_t> &local,
                                 const std::vector<std::vector<std::string>> &axes = {}) {
    schema::State &state = *stage.add_states();
    state.set_name(name);
    state.set_type(schema::F32);
    state.mutable_shape()->Assign(local.begin(), local.end());
    state.mutable_global_shape()->Assign(global.begin(), global.end());
    uint64_t bytes = sizeof(float);
    for (int64_t size : local)
      bytes *= uint64_t(size);
    state.set_bytes(bytes);
    fillSharding(*state.mutable_sharding(), axes);
    return state;
  }

  /// The entry "main" with one specialisation, in the manifest and in all stages.
  void addEntry(const std::vector<nlohmann::json> &inputs,
                const std::vector<nlohmann::json> &outputs,
                const nlohmann::json &dims = nlohmann::json::object()) {
    nlohmann::json specialisation;
    specialisation["dims"] = dims;
    specialisation["inputs"] = inputs;
    specialisation["outputs"] = outputs;
    nlohmann::json entry;
    entry["name"] = "main";
    entry["specialisations"] = std::vector{specialisation};
    manifest["entries"].push_back(entry);
    for (schema::Stage &stage : stages) {
      schema::Entry *entry = stage.add_entries();
      entry->set_name("main");
      schema::Specialisation *program = entry->add_specialisations();
      addStream(*program, "compute", schema::Stream::COMPUTE);
      addStream(*program, "comm", schema::Stream::COMMUNICATION);
    }
  }
  static nlohmann::json argument(const std::string &name, const std::vector<int64_t> &shape,
                                 const std::vector<int> &stages = {0},
                                 const std::string &type = "f32") {
    return {{"name", name}, {"type", type}, {"shape", shape}, {"stages", stages}};
  }

  schema::Specialisation &program(int stage = 0) {
    return *stages[size_t(stage)].mutable_entries(0)->mutable_specialisations(0);
  }
  static void addStream(schema::Specialisation &program, const std::string &name,
                        schema::Stream::Kind kind) {
    schema::Stream *stream = program.add_streams();
    stream->set_name(name);
    stream->set_kind(kind);
  }
  /// `axes` per dimension; granules are 1.
  static void fillSharding(schema::Sharding &sharding,
                           const std::vector<std::vector<std::string>> &axes) {
    for (const std::vector<std::string> &dimension : axes) {
      schema::DimSharding *dim = sharding.add_dims();
      for (const std::string &axis : dimension)
        dim->add_axes(axis);
    }
  }
  static void fillBinding(schema::Binding &binding, const std::string &name,
                          const std::vector<int64_t> &shape,
                          const std::vector<std::vector<std::string>> &axes = {},
                          schema::DataType type = schema::F32) {
    binding.set_name(name);
    binding.set_type(type);
    binding.mutable_shape()->Assign(shape.begin(), shape.end());
    fillSharding(*binding.mutable_sharding(), axes);
  }
  /// Adds a buffer whose slots have this shape, and returns its number.
  template <typename Program>
  static uint32_t addBuffer(Program &program, schema::Space space,
                            const std::vector<int64_t> &shape, uint32_t index = 0,
                            uint64_t offset = 0, schema::DataType type = schema::F32) {
    schema::Buffer *buffer = program.add_buffers();
    buffer->set_space(space);
    buffer->set_type(type);
    buffer->set_index(index);
    buffer->set_offset(offset);
    uint64_t bytes = rt::sizeOf(rt::DataType(type));
    for (int64_t size : shape) {
      buffer->add_shape(size);
      bytes *= uint64_t(size);
    }
    buffer->set_bytes(bytes);
    return uint32_t(program.buffers_size() - 1);
  }
  static schema::Block &addBlock(schema::Specialisation &program) {
    return *program.add_body()->mutable_block();
  }
  static schema::Step &addStep(schema::Block &block, uint32_t stream = 0) {
    schema::Step *step = block.add_steps();
    step->set_stream(stream);
    return *step;
  }
  static void addCopy(schema::Block &block, uint32_t from, uint32_t to) {
    schema::Copy *copy = addStep(block).mutable_copy();
    copy->set_input(from);
    copy->set_output(to);
  }
  /// An entry whose stage 0 copies x to y.
  void addCopyEntry(const std::vector<int64_t> &shape) {
    addEntry({argument("x", shape)}, {argument("y", shape)});
    schema::Specialisation &copying = program();
    fillBinding(*copying.add_inputs(), "x", shape);
    fillBinding(*copying.add_outputs(), "y", shape);
    uint32_t x = addBuffer(copying, schema::INPUT, shape);
    uint32_t y = addBuffer(copying, schema::OUTPUT, shape);
    addCopy(addBlock(copying), x, y);
  }
  /// out[m, n] = lhs[m, k] rhs[k, n]. Rows are contiguous, except that rhs's are `rhsRow` apart.
  static void addMatmul(schema::Block &block, uint32_t lhs, uint32_t rhs, uint32_t out, int64_t m,
                        int64_t n, int64_t k, int64_t rhsRow = 0) {
    schema::Library *call = addStep(block).mutable_library();
    schema::Matmul *matmul = call->mutable_matmul();
    for (int64_t size : {m, n, k})
      matmul->add_sizes(size);
    auto assign = [](auto *field, int64_t row) {
      field->Add(row);
      field->Add(1);
    };
    assign(matmul->mutable_lhs(), k);
    assign(matmul->mutable_rhs(), rhsRow ? rhsRow : n);
    assign(matmul->mutable_out(), n);
    matmul->set_alpha(1);
    matmul->set_type(schema::F32);
    call->add_inputs(lhs);
    call->add_inputs(rhs);
    call->add_outputs(out);
  }
  static schema::Group &addGroup(schema::Block &block, schema::Group::Kind kind,
                                 const std::vector<std::string> &axes,
                                 const std::vector<uint32_t> &inputs,
                                 const std::vector<uint32_t> &outputs, uint32_t stream = 1) {
    schema::Group *group = addStep(block, stream).mutable_group();
    group->set_kind(kind);
    if (kind == schema::Group::ALL_REDUCE || kind == schema::Group::REDUCE_SCATTER)
      group->set_reduction(schema::Group::SUM);
    for (const std::string &axis : axes)
      group->add_axes(axis);
    group->mutable_inputs()->Assign(inputs.begin(), inputs.end());
    group->mutable_outputs()->Assign(outputs.begin(), outputs.end());
    return *group;
  }
  static void addRecord(schema::Block &block, uint32_t event, uint32_t stream) {
    addStep(block, stream).mutable_record()->set_id(event);
  }
  static void addWait(schema::Block &block, uint32_t event, uint32_t stream, uint32_t lag = 0) {
    schema::Event *wait = addStep(block, stream).mutable_wait();
    wait->set_id(event);
    wait->set_lag(lag);
  }
  static void addConstant(schema::Specialisation &program, const std::string &bytes) {
    program.mutable_buffers(program.buffers_size() - 1)->set_value(bytes);
  }

  /// Writes the model and the plan into `folder` and returns the plan's path.
  std::filesystem::path write(const std::filesystem::path &folder) {
    std::filesystem::path plan = folder / "model.plan";
    writeFile(folder / "model.onnx", model);
    manifest["model"] = {{"path", "../model.onnx"},
                         {"bytes", model.size()},
                         {"sha256", sha256(std::as_bytes(std::span(model)))}};
    for (size_t i = 0; i < stages.size(); ++i)
      addFile(plan, "stage" + std::to_string(i) + ".pb",
              rawStages.count(i) ? rawStages[i] : stages[i].SerializeAsString());
    for (auto &[name, code] : kernels)
      addFile(plan, "kernels/" + name, code);
    if (editManifest)
      editManifest(manifest);
    writeFile(plan / "manifest.json", manifest.dump(1));
    return plan;
  }

  nlohmann::json manifest;
  std::vector<schema::Stage> stages;
  std::map<std::string, std::string> kernels;
  std::map<size_t, std::string> rawStages; // stages to write instead of `stages`
  std::string model;
  /// Called with the finished manifest, for damage that `write` would undo.
  std::function<void(nlohmann::json &)> editManifest;

private:
  void addFile(const std::filesystem::path &plan, const std::string &name,
               const std::string &contents) {
    writeFile(plan / name, contents);
    manifest["files"][name] = {{"bytes", contents.size()},
                               {"sha256", sha256(std::as_bytes(std::span(contents)))}};
  }
};

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_RUNTIME_PLANBUILDER_H
