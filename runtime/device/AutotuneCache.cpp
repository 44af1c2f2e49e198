//===- AutotuneCache.cpp - measured choices among algorithms --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/AutotuneCache.h"

#include "support/FileSwap.h"
#include "support/JsonDepth.h"
#include "support/Sha256.h"
#include "support/Text.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

using namespace gridloom;
using namespace gridloom::rt;
using nlohmann::json;
namespace fs = std::filesystem;

static constexpr int format = 1;

static json toJson(const std::map<std::string, AutotuneCache::Choice> &choices) {
  json object = json::object();
  for (const auto &[problem, choice] : choices)
    object[problem] = {{"algorithm", toHex(std::as_bytes(std::span(choice.algorithm)))},
                       {"microseconds", choice.microseconds},
                       {"guess_microseconds", choice.guessMicroseconds}};
  return object;
}

/// Inverts toJson. Throws on other objects.
static std::map<std::string, AutotuneCache::Choice> fromJson(const json &object) {
  std::map<std::string, AutotuneCache::Choice> choices;
  for (const auto &[problem, choice] : object.items()) {
    std::optional<std::string> algorithm = fromHex(choice.at("algorithm").get<std::string>());
    if (!algorithm)
      throw std::runtime_error("an algorithm is not in hexadecimal digits");
    choices[problem] = {*algorithm, choice.at("microseconds").get<double>(),
                        choice.at("guess_microseconds").get<double>()};
  }
  return choices;
}

AutotuneCache::AutotuneCache(fs::path folder, std::string device, bool measures)
    : folder(std::move(folder)), device(std::move(device)), measures(measures) {
  try {
    read();
  } catch (const std::exception &error) {
    choices.clear();
    complaint = getPath().string() + " is ignored: it is damaged; run with --autotune to write it "
                                     "anew";
  }
}

void AutotuneCache::read() {
  constexpr uintmax_t largest = 64 << 20;
  std::error_code error;
  uintmax_t bytes = fs::file_size(getPath(), error);
  if (error) // no such file
    return;
  if (bytes > largest)
    throw std::runtime_error("too large");
  std::ifstream stream(getPath(), std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (isDeepJson(text))
    throw std::runtime_error(describeDeepJson());
  json file = json::parse(text);
  if (file.at("format").get<int>() != format)
    complaint = getPath().string() + " is ignored: it has format " + file.at("format").dump() +
                ", this version reads " + std::to_string(format);
  else if (std::string other = file.at("device").get<std::string>(); other != device)
    complaint =
        getPath().string() + " is ignored: it was measured on " + other + ", this is " + device;
  else
    choices = fromJson(file.at("choices"));
}

std::optional<AutotuneCache::Choice> AutotuneCache::find(const std::string &problem) const {
  std::lock_guard lock(mutex);
  auto found = choices.find(problem);
  return found == choices.end() ? std::nullopt : std::optional(found->second);
}

void AutotuneCache::reject(const std::string &problem) {
  std::lock_guard lock(mutex);
  choices.erase(problem);
}

bool AutotuneCache::shouldMeasure(const std::string &problem) const {
  std::lock_guard lock(mutex);
  return measures && !choices.count(problem) && !measured.count(problem);
}

void AutotuneCache::add(const std::string &problem, Choice choice) {
  std::lock_guard lock(mutex);
  measured[problem] = std::move(choice);
}

std::string AutotuneCache::getDigest() const {
  std::lock_guard lock(mutex);
  return sha256(toJson(choices).dump());
}

void AutotuneCache::clear() {
  std::lock_guard lock(mutex);
  choices.clear();
}

size_t AutotuneCache::getNumMeasured() const {
  std::lock_guard lock(mutex);
  return measured.size();
}

std::string AutotuneCache::getMeasured() const {
  std::lock_guard lock(mutex);
  return toJson(measured).dump();
}

void AutotuneCache::merge(const std::string &text) {
  std::lock_guard lock(mutex);
  measured.merge(fromJson(json::parse(text)));
}

std::string AutotuneCache::save() const {
  std::lock_guard lock(mutex);
  std::map<std::string, Choice> all = measured;
  all.insert(choices.begin(), choices.end());
  std::ostringstream text;
  text << json{{"format", format}, {"device", device}, {"choices", toJson(all)}}.dump(1) << "\n";
  std::error_code error;
  fs::create_directories(folder, error);
  std::string reason = error ? error.message() : replaceFile(getPath(), {text.str()});
  if (reason.empty())
    return "";
  return getPath().string() + " cannot be written (" + reason +
         "); what was measured is lost, make the plan's folder writable";
}
