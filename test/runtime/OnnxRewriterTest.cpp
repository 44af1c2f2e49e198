//===- OnnxRewriterTest.cpp - writing an ONNX file with other weights -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// test/python/test_checkpoint_verb.py reads the files with ONNX.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/OnnxRewriter.h"

#include "runtime/core/Error.h"
#include "runtime/core/OnnxWire.h"
#include "support/TemporaryFolder.h"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sys/syscall.h>
#include <unistd.h>

using namespace gridloom::rt;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// Called when this thread closes a file that it wrote.
static thread_local std::function<void()> onWritten;

/// Replaces the C library's close, so that tests can act between steps of a program.
extern "C" int close(int descriptor) {
  bool isWritten = (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_WRONLY;
  int status = int(syscall(SYS_close, descriptor));
  if (isWritten && onWritten)
    std::exchange(onWritten, nullptr)();
  return status;
}

namespace {

std::string makeField(uint32_t number, const std::string &payload) {
  return wire::makeHeader(number, payload.size()) + payload;
}

class OnnxRewriterTest : public testing::Test {
protected:
  gridloom::TemporaryFolder folder;
  fs::path model = folder.getPath() / "m.onnx", output = folder.getPath() / "t.onnx";
  std::map<std::string, HostArray> weights;

  void SetUp() override {
    weights["w"] = HostArray::allocate(DataType::F32, {2});
    weights["w"].as<float>()[0] = 3;
    std::string dims("\x08\x02", 2), type("\x10\x01", 2); // [2], f32
    std::string tensor = dims + type + makeField(8, "w") + makeField(9, std::string(8, '\0'));
    write(model, makeField(7, makeField(5, tensor)));
  }

  static void write(const fs::path &path, const std::string &contents) {
    std::ofstream(path, std::ios::binary) << contents;
  }
  static std::string read(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(OnnxRewriterTest, OtherValuesAreWritten) {
  RewrittenModel written = rewriteModel(model, weights, output, /*force=*/false);
  EXPECT_EQ(written.bytes, fs::file_size(output));
  EXPECT_TRUE(written.data.empty());
  HostArray value = readInitializers(output)["w"];
  EXPECT_EQ(value.as<float>()[0], 3);
}

TEST_F(OnnxRewriterTest, AModelThatChangesMeanwhileLeavesTheOldFiles) {
  write(output, "old");
  onWritten = [this] { write(model, read(model)); };
  try {
    rewriteModel(model, weights, output, /*force=*/true);
    ADD_FAILURE() << "it is written";
  } catch (const Error &error) {
    EXPECT_THAT(error.what(), HasSubstr("m.onnx"));
  }
  EXPECT_FALSE(onWritten);
  EXPECT_EQ(read(output), "old");
  size_t files = size_t(std::distance(fs::directory_iterator(folder.getPath()), {}));
  EXPECT_EQ(files, 2U) << "m.onnx and t.onnx";
}

} // namespace
