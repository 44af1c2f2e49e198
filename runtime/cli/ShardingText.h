//===- ShardingText.h - shardings of the report, as people read them -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_SHARDINGTEXT_H
#define GRIDLOOM_RUNTIME_CLI_SHARDINGTEXT_H

#include <string>

namespace gridloom::rt {

/// '#dist.sharding<@mesh, [{"data"}, {}]>' as inspect writes it: "[data, -]", with a sum that is
/// still to be made over axes behind it: "[data, -] + model". Other text stays.
std::string shortenSharding(const std::string &text);
/// The device axes of what shortenSharding returned, sorted: "data+model"; "" for a whole value.
std::string listAxes(const std::string &sharding);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_SHARDINGTEXT_H
