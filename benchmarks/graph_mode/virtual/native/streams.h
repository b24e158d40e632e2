// Streams as queues on the clock, events, and device work as captured.

#pragma once

#include <algorithm>
#include <map>
#include "clock.h"

namespace {

constexpr int kMain = 7; // the number that CUDA's default stream has in Kineto's rows
constexpr int kStreams = 64, kRing = 1 << 13;

struct Stream {
  int64_t free = 0;
  uint64_t count = 0;
  std::vector<int64_t> ends;
};
Stream streams[kStreams];
struct Event {
  int64_t reached = 0;
  int stream = -1;
  int32_t correlation = -1; // of the call that recorded it
};
std::vector<Event> events;
int current = kMain;

// A piece of device work as captured: played again by vd_replay.
struct Node {
  enum What { KERNEL, RECORD, WAIT } what;
  int stream, event;
  double duration;
  int name;
};
std::map<int, std::vector<Node>> segments;
int segment = -1; // that is being captured; -1 for none
bool capturing = false;
std::vector<std::vector<Node>> graphs;

void reset_streams() {
  for (Stream& stream : streams) {
    stream.free = 0;
    stream.count = 0;
    stream.ends.assign(kRing, 0);
  }
  events.assign(256, {});
  current = kMain;
}

} // namespace
