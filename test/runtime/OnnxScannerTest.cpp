//===- OnnxScannerTest.cpp ------------------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/OnnxScanner.h"

#include "runtime/core/Error.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <random>

using namespace gridloom::rt;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// Writes messages in the protobuf wire format.
class Message {
public:
  Message &varint(unsigned field, uint64_t value) {
    put(field << 3);
    put(value);
    return *this;
  }
  Message &bytes(unsigned field, const std::string &value) {
    put(field << 3 | 2);
    put(value.size());
    text += value;
    return *this;
  }
  Message &message(unsigned field, const Message &value) { return bytes(field, value.text); }
  Message &packed(unsigned field, const std::vector<uint64_t> &values) {
    Message content;
    for (uint64_t value : values)
      content.put(value);
    return bytes(field, content.text);
  }
  Message &floats(unsigned field, const std::vector<float> &values) {
    return bytes(field,
                 std::string(reinterpret_cast<const char *>(values.data()), values.size() * 4));
  }
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      text.push_back(static_cast<char>(value | 0x80));
    text.push_back(static_cast<char>(value));
  }

  std::string text;
};

constexpr unsigned kF32 = 1, kI64 = 7, kBool = 9, kF16 = 10, kString = 8, kUint4 = 21, kInt4 = 22,
                   kInt2 = 26;

Message tensor(const std::string &name, unsigned type, const std::vector<int64_t> &shape) {
  Message message;
  for (int64_t dim : shape)
    message.varint(1, static_cast<uint64_t>(dim));
  return message.varint(2, type).bytes(8, name);
}

std::string raw(const std::vector<float> &values) {
  return Message().floats(1, values).text.substr(2);
}

Message external(Message message, const std::string &location, const std::string &offset = "",
                 const std::string &length = "") {
  message.message(13, Message().bytes(1, "location").bytes(2, location));
  if (!offset.empty())
    message.message(13, Message().bytes(1, "offset").bytes(2, offset));
  if (!length.empty())
    message.message(13, Message().bytes(1, "length").bytes(2, length));
  return message.varint(14, 1);
}

Message modelOf(const std::vector<Message> &initializers, const std::vector<Message> &nodes = {}) {
  Message graph;
  for (const Message &node : nodes)
    graph.message(1, node);
  graph.bytes(2, "g");
  for (const Message &initializer : initializers)
    graph.message(5, initializer);
  return Message().varint(1, 8).message(7, graph);
}

std::vector<float> asFloats(const std::vector<char> &data) {
  std::vector<float> values(data.size() / 4);
  std::memcpy(values.data(), data.data(), data.size());
  return values;
}
std::vector<int64_t> asInts(const std::vector<char> &data) {
  std::vector<int64_t> values(data.size() / 8);
  std::memcpy(values.data(), data.data(), data.size());
  return values;
}

class OnnxScannerTest : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             ("gridloom-scanner-" + std::to_string(getpid()) + "-" +
              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder / "model");
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::filesystem::path write(const std::string &text, const std::string &name = "m.onnx") {
    std::filesystem::path path = folder / "model" / name;
    std::filesystem::remove(path); // truncating and rewriting a file makes file systems flush it
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::filesystem::path write(const Message &message) { return write(message.text); }

  std::string errorOf(const std::function<void()> &action) {
    try {
      action();
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }
  std::string scanError(const Message &message) {
    return errorOf([&] { OnnxFile(write(message)).scan(); });
  }

  std::filesystem::path folder;
};

TEST_F(OnnxScannerTest, RawDataIsFoundInPlace) {
  auto path = write(modelOf({tensor("a", kF32, {2, 3}).bytes(9, raw({1, 2, 3, 4, 5, 6})),
                             tensor("s", kF32, {}).bytes(9, raw({7}))}));
  auto tensors = OnnxFile(path).scan();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(tensors[0].bytes, 24u);
  EXPECT_TRUE(tensors[0].inPlace);
  std::ifstream file(path, std::ios::binary);
  std::vector<char> data(24);
  file.seekg(static_cast<std::streamoff>(tensors[0].offset)).read(data.data(), 24);
  EXPECT_THAT(asFloats(data), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(asFloats(OnnxFile(path).read(tensors[1])), ElementsAre(7));
  EXPECT_TRUE(tensors[1].shape.empty());
}

TEST_F(OnnxScannerTest, PackedFloatsAreInPlaceAndVarintsAreDecoded) {
  Message halves = tensor("h", kF16, {2}).packed(5, {0x3c00, 0xc000});
  Message bools = tensor("b", kBool, {3}).packed(5, {0, 1, 2});
  Message unpacked = tensor("u", kI64, {2}).varint(7, 5).varint(7, static_cast<uint64_t>(-6));
  auto path = write(modelOf({tensor("f", kF32, {2}).floats(4, {8, 9}),
                             tensor("i", kI64, {3}).packed(7, {1, static_cast<uint64_t>(-1), 300}),
                             halves, bools, unpacked}));
  auto tensors = OnnxFile(path).scan();
  ASSERT_EQ(tensors.size(), 5u);
  EXPECT_TRUE(tensors[0].inPlace);
  EXPECT_THAT(asFloats(OnnxFile(path).read(tensors[0])), ElementsAre(8, 9));
  EXPECT_FALSE(tensors[1].inPlace);
  EXPECT_EQ(tensors[1].getSize(), 24u);
  EXPECT_THAT(asInts(OnnxFile(path).read(tensors[1])), ElementsAre(1, -1, 300));
  EXPECT_THAT(OnnxFile(path).read(tensors[2]),
              ElementsAre(0x00, 0x3c, 0x00, static_cast<char>(0xc0)));
  EXPECT_THAT(OnnxFile(path).read(tensors[3]), ElementsAre(0, 1, 1));
  EXPECT_THAT(asInts(OnnxFile(path).read(tensors[4])), ElementsAre(5, -6));
}

TEST_F(OnnxScannerTest, NumbersBelowABytePack) {
  // Tensors whose rows are whole bytes keep their shape; others become one row of bytes, with
  // unused bits in the last.
  auto path =
      write(modelOf({tensor("rows", kInt4, {2, 4}).bytes(9, "abcd"),
                     tensor("all", kUint4, {3, 3}).packed(5, {0x21, 0x43, 0x65, 0x87, 0x09}),
                     tensor("one", kInt2, {}).bytes(9, "a")}));
  auto tensors = OnnxFile(path).scan();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].type, DataType::U8);
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 2));
  EXPECT_THAT(tensors[0].getNumberShape(), ElementsAre(2, 4));
  EXPECT_EQ(tensors[0].getTypeName(), "i4");
  EXPECT_EQ(tensors[0].packed->bits, 4u);
  EXPECT_THAT(tensors[1].shape, ElementsAre(5));
  EXPECT_THAT(tensors[1].getNumberShape(), ElementsAre(3, 3));
  EXPECT_THAT(OnnxFile(path).read(tensors[1]),
              ElementsAre(0x21, 0x43, 0x65, static_cast<char>(0x87), 0x09));
  EXPECT_THAT(tensors[2].shape, ElementsAre(1));
  EXPECT_EQ(tensors[2].getTypeName(), "i2");
  EXPECT_THAT(scanError(modelOf({tensor("w", kInt4, {3, 5}).bytes(9, "1234567")})),
              HasSubstr("'w' has 7 bytes of data, but its shape [3, 5] of i4 takes 8"));
}

TEST_F(OnnxScannerTest, ConstantNodesCountAndOtherTypesDoNot) {
  Message value =
      Message().bytes(1, "value").message(5, tensor("ignored", kF32, {1}).bytes(9, raw({3})));
  Message constant = Message().bytes(2, "c").bytes(4, "Constant").message(5, value);
  Message other = Message().bytes(2, "d").bytes(4, "ConstantOfShape").message(5, value);
  auto path = write(modelOf({tensor("text", kString, {1}).bytes(6, "hello")}, {constant, other}));
  auto tensors = OnnxFile(path).scan();
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].name, "c");
  EXPECT_FALSE(tensors[0].isInitializer);
}

TEST_F(OnnxScannerTest, ExternalDataIsFollowed) {
  write("abcd" + raw({1, 2}), "weights.bin");
  auto path = write(modelOf({external(tensor("w", kF32, {2}), "weights.bin", "4", "8")}));
  auto tensors = OnnxFile(path).scan();
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].file, "weights.bin");
  EXPECT_EQ(tensors[0].offset, 4u);
  EXPECT_THAT(asFloats(OnnxFile(path).read(tensors[0])), ElementsAre(1, 2));
}

TEST_F(OnnxScannerTest, ExternalDataStaysInTheFolder) {
  std::ofstream(folder / "secret") << raw({1, 2});
  std::filesystem::create_symlink(folder / "secret", folder / "model" / "link");
  auto refusal = [&](const std::string &location) {
    auto path = write(modelOf({external(tensor("w", kF32, {2}), location)}));
    return errorOf([&] { OnnxFile(path).read(OnnxFile(path).scan().at(0)); });
  };
  EXPECT_THAT(refusal("../secret"),
              HasSubstr("'w' is in '../secret', which leads out of the model's folder"));
  EXPECT_THAT(refusal("x/../../secret"), HasSubstr("leads out of the model's folder"));
  EXPECT_THAT(refusal((folder / "secret").string()),
              HasSubstr("not a path inside the model's folder"));
  EXPECT_THAT(refusal("link"), HasSubstr("a link that leads out of the model's folder"));
  EXPECT_THAT(refusal("missing.bin"), HasSubstr("cannot be found beside"));
  EXPECT_THAT(refusal("."), HasSubstr("is not a regular file"));
  write("1234567", "short.bin");
  EXPECT_THAT(refusal("short.bin"), HasSubstr("'w' takes 8 bytes at 0 of "));
}

TEST_F(OnnxScannerTest, SizesMustMatchShapes) {
  EXPECT_THAT(scanError(modelOf({tensor("w", kF32, {2, 2}).bytes(9, raw({1, 2, 3}))})),
              HasSubstr("'w' has 12 bytes of data, but its shape [2, 2] of f32 takes 16"));
  EXPECT_THAT(scanError(modelOf({tensor("w", kF32, {2})})), HasSubstr("'w' has 0 bytes of data"));
  EXPECT_THAT(scanError(modelOf({tensor("w", kF32, {-1}).bytes(9, "")})),
              HasSubstr("impossible shape [-1]"));
  EXPECT_THAT(
      scanError(modelOf({tensor("w", kF32, {int64_t(1) << 40, int64_t(1) << 40}).bytes(9, "")})),
      HasSubstr("impossible shape"));
  EXPECT_THAT(scanError(modelOf({tensor("w", kF32, std::vector<int64_t>(65, 1))})),
              HasSubstr("'w' has 65 dimensions, of at most 64"));
  EXPECT_THAT(scanError(modelOf({tensor("w", kF32, {0}), tensor("w", kF32, {0})})),
              HasSubstr("two tensors are called 'w'"));
  auto path = write(modelOf({tensor("w", kI64, {3}).packed(7, {1, 2})}));
  EXPECT_THAT(errorOf([&] { OnnxFile(path).read(OnnxFile(path).scan().at(0)); }),
              HasSubstr("'w' has 2 values, but its shape [3] takes 3"));
}

TEST_F(OnnxScannerTest, FilesThatAreNoModels) {
  EXPECT_THAT(errorOf([&] { OnnxFile(folder / "none.onnx").scan(); }),
              HasSubstr("none.onnx: cannot be read: No such file"));
  EXPECT_THAT(errorOf([&] { OnnxFile file(folder); }), HasSubstr("is not a regular file"));
  EXPECT_THAT(errorOf([&] { OnnxFile(write("", "empty.onnx")).scan(); }), HasSubstr("is empty"));
  EXPECT_THAT(scanError(Message().varint(1, 8)),
              HasSubstr("is not an ONNX model: it has no graph"));
  EXPECT_THAT(errorOf([&] { OnnxFile(write(std::string("\x3b\x3c", 2))).scan(); }),
              HasSubstr("wire type 3 is not used by ONNX"));
}

TEST_F(OnnxScannerTest, WeightsAreCutOut) {
  std::vector<float> big(1000, 1.5f), small(4, 2.5f), bigger(20000, 3.5f), nested(1000, 4.5f);
  Message subgraph = Message()
                         .message(5, tensor("inner", kF32, {20000}).bytes(9, raw(bigger)))
                         .message(5, tensor("own", kF32, {1000}).bytes(9, raw(nested)));
  Message node = Message().bytes(2, "y").bytes(4, "If").message(
      5, Message().bytes(1, "then").message(6, subgraph));
  auto path = write(modelOf({tensor("big", kF32, {1000}).bytes(9, raw(big)),
                             tensor("small", kF32, {4}).bytes(9, raw(small))},
                            {node}));
  std::string text = OnnxFile(path).readWithoutWeights();
  EXPECT_LT(text.size(), 4300u);
  EXPECT_THAT(text, HasSubstr(raw(small)));
  // Constants of a subgraph exist only in this text: they stay, up to 64 KiB.
  EXPECT_THAT(text, HasSubstr(raw(nested)));
  EXPECT_THAT(text, HasSubstr("big"));
  EXPECT_THAT(text, HasSubstr("inner"));
  // With nothing to cut, the bytes equal the file's.
  std::ifstream file(path, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(OnnxFile(path).readWithoutWeights(1 << 20), all);
}

TEST_F(OnnxScannerTest, DeepNestingIsRefused) {
  Message graph;
  for (int i = 0; i < 200; ++i)
    graph = Message().message(
        1, Message().bytes(4, "If").message(5, Message().bytes(1, "then").message(6, graph)));
  auto path = write(Message().message(7, graph));
  EXPECT_THAT(errorOf([&] { OnnxFile(path).readWithoutWeights(); }),
              HasSubstr("nests subgraphs too deeply"));
}

/// The scan and later reads use the same version of a file.
TEST_F(OnnxScannerTest, AFileIsOpenedOnce) {
  auto path = write(modelOf({tensor("w", kF32, {2}).bytes(9, raw({1, 2}))}));
  OnnxFile file(path);
  auto tensors = file.scan();
  std::filesystem::rename(
      write(modelOf({tensor("v", kF32, {2}).bytes(9, raw({3, 4}))}).text, "new"), path);
  EXPECT_THAT(asFloats(file.read(tensors.at(0))), ElementsAre(1, 2));
  EXPECT_THAT(file.readWithoutWeights(), HasSubstr("w"));
  std::filesystem::resize_file(path, 10);
  OnnxFile second(path);
  std::filesystem::resize_file(path, 0);
  EXPECT_THAT(errorOf([&] { second.readWithoutWeights(); }), HasSubstr("while it is in use"));
}

/// A damaged file gives an Error, or tensors that can be read or refused; sanitizers catch the
/// rest.
TEST_F(OnnxScannerTest, DamagedFilesGiveErrors) {
  Message value = Message().bytes(1, "value").message(5, tensor("x", kF32, {1}).bytes(9, raw({3})));
  std::string good = modelOf({tensor("a", kF32, {2, 3}).bytes(9, raw({1, 2, 3, 4, 5, 6})),
                              tensor("i", kI64, {3}).packed(7, {1, 2, 300}),
                              external(tensor("w", kF32, {2}), "weights.bin", "4", "8")},
                             {Message().bytes(2, "c").bytes(4, "Constant").message(5, value)})
                         .text;
  int errors = 0, scans = 0;
  auto attempt = [&](const std::string &text) {
    auto path = write(text);
    try {
      OnnxFile file(path);
      for (const OnnxTensor &tensor : file.scan())
        file.read(tensor);
      file.readWithoutWeights();
      ++scans;
    } catch (const Error &error) {
      EXPECT_STRNE(error.what(), "");
      ++errors;
    }
  };
  for (size_t length = 0; length < good.size(); ++length)
    attempt(good.substr(0, length));
  // Only cuts between the model's own fields leave complete messages, and those lack the graph.
  EXPECT_EQ(scans, 0);
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int change = 0; change < 1 + round % 4; ++change)
      text[random() % text.size()] = static_cast<char>(random());
    attempt(text);
  }
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 200, '\0');
    for (char &c : text)
      c = static_cast<char>(random());
    attempt(text);
  }
  EXPECT_GT(errors, 1000);
}

} // namespace
