//===- ShardingText.h - shardings of the report, as people read them -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_SHARDINGTEXT_H
#define GRIDLOOM_RUNTIME_CLI_SHARDINGTEXT_H

#include <string>

namespace gridloom::rt {

/// Converts '#dist.sharding<@mesh, [{"data"}, {}]>' to inspect's form: "[data, -]", followed by the
/// axes of a pending sum, if any: "[data, -] + model". Other text is returned unchanged.
std::string shortenSharding(const std::string &text);
/// The device axes in a result of shortenSharding, sorted: "data+model"; "" for a replicated value.
std::string listAxes(const std::string &sharding);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_SHARDINGTEXT_H
