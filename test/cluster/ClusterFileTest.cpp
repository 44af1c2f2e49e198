//===- ClusterFileTest.cpp - files of clusters, valid and invalid ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/ClusterFile.h"
#include "cluster/Machine.h"

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>

using namespace gridloom::cluster;
using testing::HasSubstr;

namespace {

class ClusterFileTest : public testing::Test {
protected:
  std::optional<Cluster> read(const std::string &text) {
    std::ofstream(path) << text;
    return readCluster(path, error);
  }
  /// The error message for a file that must be refused.
  std::string refuse(const std::string &text) {
    error.clear();
    EXPECT_FALSE(read(text)) << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    return error;
  }
  ~ClusterFileTest() override { std::filesystem::remove(path); }

  std::string path =
      testing::TempDir() + "cluster-file-test-" + std::to_string(::getpid()) + ".json";
  std::string error;
};

/// Two devices and a link with these numbers.
std::string makePair(const std::string &numbers) {
  return R"({"devices": [{"name": "a", "kind": "cpu"}, {"name": "b", "kind": "cpu"}],
             "links": [{"ends": ["a", "b"], )" +
         numbers + "}]}";
}

constexpr const char *kMixed = R"({
  "name": "lab",
  "device_kinds": [{
    "name": "own", "target": "cpu", "memory_bytes": 1000000, "memory_bytes_per_second": 2e10,
    "launch_seconds": 1e-6, "collective_launch_seconds": 0, "contraction_unhidden": 0.5,
    "flops_per_second": {"contraction": {"f32": 1e12, "bf16": 4e12}, "other": {"f32": 1e11}},
    "efficiency": {"contraction": [[1e6, 0.1], [1e9, 0.9]], "memory": [[1, 0.5]]}}],
  "devices": [{"name": "big", "kind": "H100-80GB", "count": 4}, {"name": "small", "kind": "own"},
              {"name": "tiny", "kind": "own", "count": 1}],
  "switches": ["nvlink", "pcie"],
  "links": [
    {"ends": ["big", "nvlink"], "latency_seconds": 1e-6, "bytes_per_second": 4e11},
    {"ends": ["big/2", "pcie"], "latency_seconds": 2e-6, "bytes_per_second": 2e10,
     "bytes_per_second_back": 1e10},
    {"ends": ["pcie", "small"], "latency_seconds": 2e-6, "bytes_per_second": 2e10},
    {"ends": ["pcie", "tiny/0"], "latency_seconds": 2e-6, "bytes_per_second": 2e10}]})";

TEST_F(ClusterFileTest, AllFieldsAreRead) {
  std::optional<Cluster> cluster = read(kMixed);
  ASSERT_TRUE(cluster) << error;
  EXPECT_EQ(cluster->name, path);
  EXPECT_EQ(cluster->getNumDevices(), 6);
  EXPECT_EQ(cluster->numSwitches, 2U);
  EXPECT_EQ(cluster->links.size(), 7U);
  EXPECT_EQ(cluster->links[4].from, 2U);
  EXPECT_EQ(cluster->links[4].bytesPerSecond, (std::array<double, 2>{2e10, 1e10}));
  const DeviceKind &own = cluster->kinds[cluster->devices[4]];
  EXPECT_EQ(own.name, "own");
  EXPECT_EQ(own.target, "cpu");
  EXPECT_EQ(own.memoryBytes, 1000000);
  EXPECT_EQ(own.bytesPerSecond, 2e10);
  EXPECT_EQ(own.launchSeconds, 1e-6);
  EXPECT_EQ(own.collectiveSeconds, 0);
  EXPECT_EQ(own.unhiddenOfContraction, 0.5);
  EXPECT_EQ(own.unhiddenOfOther, 0);
  EXPECT_EQ(own.getRate(WorkClass::Contraction, NumberType::Bf16), 4e12);
  EXPECT_EQ(own.getRate(WorkClass::Other, NumberType::F32), 1e11);
  EXPECT_EQ(own.efficiency[0].at(1), 0.1);
  EXPECT_EQ(own.efficiency[1].at(1), 1);
  EXPECT_EQ(own.memoryEfficiency.at(7), 0.5);
  Machine machine = makeMachine(*cluster, 6);
  EXPECT_EQ(machine.getName(), "H100-80GB+own");
  ASSERT_EQ(machine.levels.size(), 1U);
  EXPECT_EQ(machine.levels[0].bytesPerSecond, 1e10);
  EXPECT_EQ(makeMachine(*cluster, 4).levels, (std::vector<Level>{{4, 2e-6, 4e11}}));
}

/// Four ranks that share `cores` cores, of a kind whose rates are those of `kindCores` cores.
std::string makeRanks(const std::string &kindCores, const std::string &cores) {
  return R"({"device_kinds": [{"name": "core", "memory_bytes_per_second": 1e10, "launch_seconds": 0,
    "collective_launch_seconds": 0, "flops_per_second": {"contraction": {"f32": 1e9}}, "cores": )" +
         kindCores + R"(}], "devices": [{"name": "a", "kind": "core", "count": 4, "cores": )" +
         cores + R"(}], "switches": ["s"],
    "links": [{"ends": ["a", "s"], "latency_seconds": 0, "bytes_per_second": 1}]})";
}

TEST_F(ClusterFileTest, DevicesThatShareCores) {
  std::optional<Cluster> cluster = read(makeRanks("1", "2"));
  ASSERT_TRUE(cluster) << error;
  EXPECT_EQ(cluster->sharedCores, (std::vector<SharedCores>{{0, 4, 2}}));
  EXPECT_EQ(cluster->kinds[0].cores, 1);
  EXPECT_EQ(makeMachine(*cluster, 4).kinds[0].cores, 0.5);
  for (const char *cores : {"0", "-1", "1.5", "null"})
    EXPECT_THAT(refuse(makeRanks("1", cores)),
                HasSubstr("devices[0]: 'cores' is " + std::string(cores) + "; it has to be"));
  EXPECT_THAT(refuse(makeRanks("0", "2")),
              HasSubstr("device_kinds[0]: 'cores' is 0; it has to be a number above 0"));
  EXPECT_THAT(refuse(R"({"devices": [{"name": "a", "kind": "cpu", "cores": 2}]})"),
              HasSubstr("devices[0]: devices cannot share 'cores': kind 'cpu' does not say of how "
                        "many 'cores' its rates are"));
}

TEST_F(ClusterFileTest, FilesThatAreNotJson) {
  EXPECT_FALSE(readCluster("/nowhere/c.json", error));
  EXPECT_EQ(error, "cannot read the cluster '/nowhere/c.json'");
  EXPECT_FALSE(readCluster("/", error));
  EXPECT_EQ(error, "the cluster '/' cannot be read: it is a folder");
  EXPECT_THAT(refuse(""), HasSubstr("is not JSON: line 1, column 1"));
  EXPECT_THAT(refuse("{\n \"devices\": [,]}"), HasSubstr("is not JSON: line 2, column 14"));
  EXPECT_THAT(refuse(std::string(100'000, '[')), HasSubstr("more than 64 lists and objects"));
  EXPECT_THAT(refuse("\xff\xfe{"), HasSubstr("is not JSON"));
  std::string whole = kMixed;
  for (size_t length = 0; length < whole.size() - 1; length += 7)
    EXPECT_THAT(refuse(whole.substr(0, length)), HasSubstr("is not JSON"));
}

TEST_F(ClusterFileTest, FieldsThatAreWrong) {
  EXPECT_THAT(refuse("[]"), HasSubstr("expected an object, found array"));
  EXPECT_THAT(refuse("{}"), HasSubstr("field 'devices' is missing"));
  EXPECT_THAT(refuse(R"({"devices": []})"), HasSubstr("'devices' is empty"));
  EXPECT_THAT(refuse(R"({"devices": {}})"), HasSubstr("'devices' has to be a list"));
  EXPECT_THAT(
      refuse(R"({"devicess": []})"),
      HasSubstr("unknown field 'devicess'; did you mean 'devices'?; the fields are name, "));
  EXPECT_THAT(refuse(R"({"devices": [{"name": "a", "kind": "H100"}]})"),
              HasSubstr("devices[0]: unknown kind 'H100'; did you mean 'H100-80GB'?"));
  EXPECT_THAT(refuse(R"({"devices": [{"name": "a"}]})"), HasSubstr("field 'kind' is missing"));
  EXPECT_THAT(refuse(R"({"devices": [{"name": 7, "kind": "cpu"}]})"),
              HasSubstr("'name' has to be a name"));
  EXPECT_THAT(
      refuse(R"({"devices": [{"name": "a", "kind": "cpu"}, {"name": "a", "kind": "cpu"}]})"),
      HasSubstr("devices[1]: the name 'a' is taken"));
  const std::string group = R"({"name": "a", "kind": "cpu", "count": 2})",
                    lone = R"({"name": "a/1", "kind": "cpu"})";
  for (const std::string &both : {group + ", " + lone, lone + ", " + group})
    EXPECT_THAT(refuse("{\"devices\": [" + both + "]}"),
                HasSubstr("the name 'a/1' is taken by a device of 'a'"));
  for (const char *count : {"0", "-1", "1.5", "\"2\"", "null", "1048577"})
    EXPECT_THAT(refuse(R"({"devices": [{"name": "a", "kind": "cpu", "count": )" +
                       std::string(count) + "}]}"),
                HasSubstr("devices[0]: 'count' is " + std::string(count) + "; it has to be"));
  EXPECT_THAT(refuse(R"({"devices": [{"name": "a", "kind": "cpu"}], "switches": [7]})"),
              HasSubstr("switches[0]: a switch has to be a name"));
}

TEST_F(ClusterFileTest, SharesAboveOne) {
  std::string text = kMixed;
  text.replace(text.find("_unhidden\": 0.5"), 15, "_unhidden\": 1.5");
  EXPECT_THAT(refuse(text), HasSubstr("'contraction_unhidden' is a share, at most 1"));
}

TEST_F(ClusterFileTest, LinksThatAreWrong) {
  EXPECT_TRUE(read(makePair(R"("latency_seconds": 0, "bytes_per_second": 1)")));
  for (const char *bandwidth : {"0", "-1", "null", "\"fast\"", "-0.0"})
    EXPECT_THAT(
        refuse(makePair(R"("latency_seconds": 0, "bytes_per_second": )" + std::string(bandwidth))),
        HasSubstr("links[0]: 'bytes_per_second' is " + std::string(bandwidth) +
                  "; it has to be a number above 0"));
  // JSON has no NaN and no infinity.
  for (const char *bandwidth : {"NaN", "Infinity", "1e999"})
    EXPECT_THAT(
        refuse(makePair(R"("latency_seconds": 0, "bytes_per_second": )" + std::string(bandwidth))),
        HasSubstr("is not JSON"));
  EXPECT_THAT(refuse(makePair(R"("latency_seconds": -1, "bytes_per_second": 1)")),
              HasSubstr("'latency_seconds' is -1; it has to be a number of at least 0"));
  EXPECT_THAT(refuse(makePair(
                  R"("latency_seconds": 0, "bytes_per_second": 1, "bytes_per_second_back": 0)")),
              HasSubstr("'bytes_per_second_back' is 0"));
  EXPECT_THAT(refuse(makePair(R"("bytes_per_second": 1)")),
              HasSubstr("field 'latency_seconds' is missing"));
  EXPECT_THAT(refuse(makePair(R"("latency": 1)")),
              HasSubstr("unknown field 'latency'; did you mean 'latency_seconds'?"));
  auto joined = [](const std::string &ends) {
    return R"({"devices": [{"name": "gpu", "kind": "cpu", "count": 2}, {"name": "b", "kind": "cpu"}], "switches": ["s"],
             "links": [{"ends": )" +
           ends + R"(, "latency_seconds": 0, "bytes_per_second": 1}]})";
  };
  EXPECT_THAT(refuse(joined(R"(["gpu", "sw"])")),
              HasSubstr("links[0]: there is no device or switch 'sw'; did you mean 's'?"));
  for (const char *end : {"gpu/2", "gpu/", "gpu/-1", "gpu/1x", "b/0", "/0"})
    EXPECT_THAT(refuse(joined(R"(["s", ")" + std::string(end) + "\"]")),
                HasSubstr("there is no device or switch '" + std::string(end) + "'"));
  EXPECT_THAT(refuse(joined(R"(["b"])")), HasSubstr("'ends' has to be two names"));
  EXPECT_THAT(refuse(joined(R"([1, 2])")), HasSubstr("'ends' has to be two names"));
  EXPECT_THAT(refuse(joined(R"(["b", "b"])")), HasSubstr("it joins a node with itself"));
  EXPECT_THAT(refuse(joined(R"(["gpu", "gpu"])")), HasSubstr("both ends are groups of devices"));
  EXPECT_THAT(refuse(joined(R"(["gpu", "s"])")), HasSubstr("no links join device 2 with device 0"));
}

/// Numbers with which times would not be finite.
TEST_F(ClusterFileTest, NumbersBeyondAnyMachine) {
  for (const char *bandwidth : {"5e-324", "1e-10", "1e+31", "1e+308"})
    EXPECT_THAT(
        refuse(makePair(R"("latency_seconds": 0, "bytes_per_second": )" + std::string(bandwidth))),
        HasSubstr("links[0]: 'bytes_per_second' is " + std::string(bandwidth) +
                  "; it has to be from 1e-09 to 1e+30"));
  EXPECT_THAT(refuse(makePair(R"("latency_seconds": 1e308, "bytes_per_second": 1)")),
              HasSubstr("'latency_seconds' is 1e+308; it has to be from 0 to 1e+09"));
  EXPECT_THAT(refuse(makeRanks("1e-300", "2")),
              HasSubstr("'cores' is 1e-300; it has to be from 0.001 to 1e+06"));
  std::string text = kMixed;
  text.replace(text.find("1000000,"), 7, "0.5");
  EXPECT_THAT(refuse(text), HasSubstr("'memory_bytes' is 0.5; it has to be from 1 to 1e+30"));
  text = kMixed;
  text.replace(text.find("1e12"), 4, "1e-300");
  EXPECT_THAT(refuse(text), HasSubstr("device_kinds[0].flops_per_second.contraction: 'f32' is "
                                      "1e-300; it has to be from 1e-09 to 1e+30"));
  text = kMixed;
  text.replace(text.find("[1, 0.5]"), 8, "[1, 1e-300]");
  EXPECT_THAT(refuse(text), HasSubstr("'memory' has to be a list of [size, share], sizes in order "
                                      "from 1e-9 to 1e30 and shares from 1e-9 to 1"));
}

/// A link entry of a group counts as one link per device of the group.
TEST_F(ClusterFileTest, MoreLinksThanAreRead) {
  auto make = [](int lines) {
    std::string links;
    for (int i = 0; i < lines; ++i)
      links += std::string(i ? "," : "") +
               R"({"ends": ["gpu", "s"], "latency_seconds": 0, "bytes_per_second": 1})";
    return R"({"devices": [{"name": "gpu", "kind": "cpu", "count": 200000}], "switches": ["s"], "links": [)" +
           links + "]}";
  };
  EXPECT_THAT(refuse(make(20)),
              HasSubstr("links[15]: with the 200000 of this line the cluster has 3200000 links; at "
                        "most 3145728 are read"));
}

TEST_F(ClusterFileTest, ListsInLists) {
  std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(refuse(R"({"devices": )" + deep + "}"),
              HasSubstr("cannot be used: it has more than 64 lists and objects in each other"));
  EXPECT_THAT(refuse(makePair(R"("latency_seconds": )" + deep)), HasSubstr("more than 64 lists"));
}

TEST_F(ClusterFileTest, KindsThatAreWrong) {
  auto kind = [](const std::string &fields) {
    return R"({"device_kinds": [{"name": "k", "launch_seconds": 0, "collective_launch_seconds": 0, )" +
           fields + R"(}], "devices": [{"name": "a", "kind": "k"}]})";
  };
  const std::string memory = R"("memory_bytes_per_second": 1, )",
                    rates = R"("flops_per_second": {"contraction": {"f32": 1}})";
  EXPECT_TRUE(read(kind(memory + rates))) << error;
  EXPECT_THAT(refuse(kind(rates)),
              HasSubstr("device_kinds[0]: field 'memory_bytes_per_second' is missing"));
  EXPECT_THAT(refuse(kind(R"("memory_bytes_per_second": 0, )" + rates)),
              HasSubstr("'memory_bytes_per_second' is 0"));
  EXPECT_THAT(refuse(kind(memory + R"("flops_per_second": {"other": {"f32": 1}})")),
              HasSubstr("device_kinds[0].flops_per_second: field 'contraction.f32' is missing"));
  EXPECT_THAT(refuse(kind(memory + R"("flops_per_second": {"contraction": {"f31": 1}})")),
              HasSubstr("flops_per_second.contraction: unknown field 'f31'; did you mean 'f32'?"));
  for (const char *curve : {"7", "[]", "[1]", "[[1]]", "[[1, 0]]", "[[1, 2]]", "[[0, 1]]",
                            "[[2, 1], [1, 1]]", "[[1, \"a\"]]"})
    EXPECT_THAT(
        refuse(kind(memory + rates + R"(, "efficiency": {"memory": )" + curve + "}")),
        HasSubstr("device_kinds[0].efficiency: 'memory' has to be a list of [size, share]"));
}

/// Ten thousand hosts of ten devices. Each device and link has a line of its own, links in random
/// order of speeds.
TEST_F(ClusterFileTest, LargeFilesAreReadQuickly) {
  constexpr int devices = 100'000;
  std::string text = "{\"devices\": [";
  for (int i = 0; i < devices; ++i)
    text += std::string(i ? "," : "") + R"({"name": "d)" + std::to_string(i) +
            R"(", "kind": "H100-80GB"})";
  text += "],\n\"switches\": [\"network\"";
  for (int i = 0; i < devices / 10; ++i)
    text += ", \"s" + std::to_string(i) + '"';
  text += "],\n\"links\": [";
  for (int i = 0; i < devices; ++i)
    text += std::string(i ? "," : "") + R"({"ends": ["d)" + std::to_string(i) + R"(", "s)" +
            std::to_string(i / 10) + R"("], "latency_seconds": 1e-6, "bytes_per_second": )" +
            std::to_string(100'000'000'000 + i) + "}\n";
  for (int i = 0; i < devices / 10; ++i)
    text += R"(,{"ends": ["s)" + std::to_string(i) +
            R"(", "network"], "latency_seconds": 1e-6, "bytes_per_second": )" +
            std::to_string(1'000'000'000 + i) + "}\n";
  text += "]}";
  auto begin = std::chrono::steady_clock::now();
  std::optional<Cluster> cluster = read(text);
  ASSERT_TRUE(cluster) << error;
  Machine machine = makeMachine(*cluster, devices);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(machine.levels.size(), 2U);
  EXPECT_EQ(machine.levels[0].block, 10);
  EXPECT_LT(seconds.count(), 10) << "quadratic time would take minutes";
  RecordProperty("milliseconds", static_cast<int>(1e3 * seconds.count()));
}

} // namespace
