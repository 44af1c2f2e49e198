//===- ProgramTimes.cpp - the times of a run's steps ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/PlanQueries.h"
#include "runtime/core/Program.h"

#include <algorithm>
#include <iterator>

using namespace gridloom;
using namespace gridloom::rt;

/// Moves the steps' times into `added`. All streams have reached this place.
void Program::addTimes() {
  std::vector<TraceEvent> part;
  for (StretchTimes &stretch : stretches) {
    timeline.insert(timeline.end(), stretch.done.begin(), stretch.done.end());
    stretch.done.clear();
  }
  for (const Timed &timed : timeline) {
    span.begin = span.begin ? std::min(span.begin, timed.begin) : timed.begin;
    span.end = std::max(span.end, timed.end);
    part.push_back(makeEvent(timed));
  }
  timeline.clear();
  added.add(part);
  if (context.named)
    trace.insert(trace.end(), std::make_move_iterator(part.begin()),
                 std::make_move_iterator(part.end()));
}

TraceEvent Program::makeEvent(const Timed &timed) const {
  TraceEvent event;
  const schema::Stream &stream = program.streams(int(timed.step->stream()));
  if (context.named) {
    event.name = describe(*timed.step);
    if (timed.step->origin() < uint32_t(context.stage.origins_size()))
      event.origin = context.stage.origins(int(timed.step->origin()));
    event.stream = stream.name();
    event.part = getPart(context.stage, program, *timed.step);
  }
  event.kind = getKind(stream);
  event.isTransfer =
      timed.step->has_group() && (timed.step->group().kind() == schema::Group::SEND ||
                                  timed.step->group().kind() == schema::Group::RECV);
  if (timed.step->has_group()) {
    const schema::Group &group = timed.step->group();
    for (uint32_t buffer : group.inputs_size() ? group.inputs() : group.outputs())
      event.bytes += program.buffers(int(buffer)).bytes();
  }
  event.rank = context.rank;
  event.iteration = timed.iteration;
  event.begin = timed.begin;
  event.end = timed.end;
  return event;
}

/// A loop may have any number of iterations. Called at its condition, which all streams have
/// reached.
void Program::addTimesIfMany() {
  constexpr size_t most = 4096;
  size_t held = timeline.size();
  for (const StretchTimes &stretch : stretches)
    held += stretch.done.size();
  if (held >= most)
    addTimes();
}
