//===- ProblemReaderTest.cpp - problem files, valid and not ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/ProblemReader.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include <unistd.h>

using namespace gridloom::solver;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

/// The parts of a file; each test breaks one.
struct Parts {
  std::string intervals = "[[0, 4], [2, 2]]", costs = "[[1, 2], [3]]", usages = "[[5, 6], [7]]",
              edges = "[[0, 1]]", edgeCosts = "[[8, 9]]", limit = "10";

  std::string makeText() const {
    return R"({"problem": {"name": "x", "nodes": {"intervals": )" + intervals + R"(, "costs": )" +
           costs + R"(, "usages": )" + usages + R"(}, "edges": {"nodes": )" + edges +
           R"(, "costs": )" + edgeCosts + R"(}, "usage_limit": )" + limit + "}}";
  }
};

/// A file that the destructor removes.
class File {
public:
  explicit File(const std::string &bytes)
      : path(std::filesystem::temp_directory_path() /
             ("gridloom-solver-" + std::to_string(getpid()))) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~File() { std::filesystem::remove(path); }
  std::string read() const {
    Problem problem;
    return readProblem(path, problem);
  }

private:
  std::filesystem::path path;
};

} // namespace

static std::string parse(const std::string &text) {
  Problem problem;
  return parseProblem(text, problem);
}

static std::string compress(const std::string &text) {
  std::string bytes(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY); // 16: with gzip's header
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(text.data()));
  stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef *>(bytes.data());
  stream.avail_out = uInt(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

TEST(ProblemReader, ReadsEveryTable) {
  Parts parts;
  parts.costs = "[[1, 2e3], [1000000000000000000000]]"; // infinite in either notation
  Problem problem;
  ASSERT_EQ(parseProblem(parts.makeText(), problem), "");
  ASSERT_EQ(problem.getNumNodes(), 2u);
  EXPECT_EQ(problem.intervals[0].end, 4);
  EXPECT_THAT(problem.costs[0], testing::ElementsAre(1, 2000));
  EXPECT_GE(problem.costs[1][0], infiniteCost);
  EXPECT_THAT(problem.usages[1], testing::ElementsAre(7));
  EXPECT_EQ(problem.edges[0].second, 1u);
  EXPECT_THAT(problem.edgeCosts[0], testing::ElementsAre(8, 9));
  EXPECT_EQ(problem.usageLimit, 10);
}

struct Wrong {
  std::string Parts::*part;
  const char *text, *fault;
};

class WrongParts : public testing::TestWithParam<Wrong> {};

TEST_P(WrongParts, AreNamedInOneLine) {
  Parts parts;
  parts.*GetParam().part = GetParam().text;
  std::string fault = parse(parts.makeText());
  EXPECT_THAT(fault, HasSubstr(GetParam().fault));
  EXPECT_EQ(fault.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    ProblemReader, WrongParts,
    testing::Values(
        Wrong{&Parts::intervals, "[]", "the problem has no nodes"},
        Wrong{&Parts::intervals, "[[0, 4]]", "nodes.intervals has 1 rows, nodes.costs has 2"},
        Wrong{&Parts::intervals, "[[0, 4], [3, 2]]", "nodes.intervals[1] is [3, 2]"},
        Wrong{&Parts::intervals, "[[-1, 4], [2, 2]]", "nodes.intervals[0] is [-1, 4]"},
        Wrong{&Parts::intervals, "[[0, 4], [2]]", "nodes.intervals[1] has 1 numbers"},
        Wrong{&Parts::intervals, "[[0, 4, 5], [2, 2]]", "nodes.intervals[0] has 3 numbers"},
        Wrong{&Parts::intervals, "[[0, 4], 2]", "nodes.intervals[1] is a number where a list"},
        Wrong{&Parts::intervals, "{}", "nodes.intervals is an object"},
        Wrong{&Parts::costs, "[[1, 2], []]", "nodes.costs[1] is empty"},
        Wrong{&Parts::costs, "[[1, 2.5], [3]]", "nodes.costs[0][1] is 2.5, not a whole number"},
        Wrong{&Parts::costs, "[[1, null], [3]]", "nodes.costs[0][1] is null"},
        Wrong{&Parts::costs, "[[1, \"2\"], [3]]", "nodes.costs[0][1] is a string"},
        Wrong{&Parts::costs, "[[1, true], [3]]", "nodes.costs[0][1] is true or false"},
        Wrong{&Parts::costs, "[[1, [2]], [3]]", "nodes.costs[0][1] holds an array too many"},
        Wrong{&Parts::costs, "[[1, -2], [3]]", "nodes.costs[0] has a negative value"},
        Wrong{&Parts::costs, "[[1, NaN], [3]]", "not valid JSON"},
        Wrong{&Parts::costs, "[[1, 1e999], [3]]", "not valid JSON"},
        Wrong{&Parts::usages, "[[5], [7]]", "nodes.usages[0] has 1 values, nodes.costs[0] has 2"},
        Wrong{&Parts::usages, "[[5, 6], [1e18]]", "nodes.usages[1] has a usage of"},
        Wrong{&Parts::edges, "[[0, 2]]", "edges.nodes[0] names node 2; there are 2 nodes"},
        Wrong{&Parts::edges, "[[0, -1]]", "edges.nodes[0][1] is -1, not the index of a node"},
        Wrong{&Parts::edges, "[[0, 4294967297]]", "is 4294967297, not the index of a node"},
        Wrong{&Parts::edges, "[[0, 1], [0, 1]]", "edges.nodes has 2 rows, edges.costs has 1"},
        Wrong{&Parts::edgeCosts, "[[8, 9, 1]]",
              "edges.costs[0] has 3 values; nodes 0 and 1 need "
              "2 * 1"},
        Wrong{&Parts::edgeCosts, "[[8, -9]]", "edges.costs[0] has a negative value"},
        Wrong{&Parts::limit, "-1", "usage_limit is -1"},
        Wrong{&Parts::limit, "[1]", "usage_limit holds an array too many"},
        Wrong{&Parts::limit, "1, \"usage_limit\": 2", "usage_limit is given twice"}));

TEST(ProblemReader, RefusesSumsThatOverflow) {
  Parts parts;
  parts.intervals = parts.costs = parts.usages = "[[0, 0]";
  parts.edges = "[]";
  parts.edgeCosts = "[]";
  for (int i = 1; i < 8; ++i) {
    parts.intervals += ", [0, 0]";
    parts.costs += ", [999999999999999999, 0]";
    parts.usages += ", [0, 0]";
  }
  parts.intervals += "]";
  parts.costs += "]";
  parts.usages += "]";
  EXPECT_THAT(parse(parts.makeText()), HasSubstr("the largest values of all rows sum to more"));
}

TEST(ProblemReader, RefusesOtherJson) {
  EXPECT_THAT(parse("[1, 2]"), HasSubstr("problem.nodes.intervals is missing"));
  EXPECT_THAT(parse("{\"problem\": {}}"), HasSubstr("problem.nodes.intervals is missing"));
  EXPECT_THAT(parse(""), StartsWith("not valid JSON"));
  EXPECT_THAT(parse(Parts().makeText() + "}"), StartsWith("not valid JSON at byte"));
  EXPECT_THAT(parse(std::string(100'000, '[')), HasSubstr("nested more than 64 deep"));
}

TEST(ProblemReader, EveryBeginningOfAFileIsRefused) {
  std::string text = Parts().makeText();
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_NE(parse(text.substr(0, length)), "") << length;
}

TEST(ProblemReader, ReadsGzipAndRefusesDamage) {
  std::string bytes = compress(Parts().makeText());
  EXPECT_EQ(File(bytes).read(), "");
  EXPECT_THAT(File(bytes.substr(0, bytes.size() - 4)).read(), HasSubstr("cut off"));
  EXPECT_THAT(File(bytes.substr(0, bytes.size() / 2)).read(), HasSubstr("cut off"));
  bytes[bytes.size() - 6] ^= 1; // the checksum
  EXPECT_THAT(File(bytes).read(), HasSubstr("damaged gzip file"));
  EXPECT_THAT(File("").read(), HasSubstr("is empty"));
  Problem problem;
  EXPECT_THAT(readProblem("/nowhere/x.json", problem), HasSubstr("No such file"));
  EXPECT_THAT(readProblem("/", problem), HasSubstr("is a folder"));
}
