// Calls into the driver: launching, waiting for room in a queue, synchronising.

#pragma once

#include "rows.h"

namespace {

// Cost of an API call, which spins; what the profiler's callback adds stands partly before the row.
struct Call {
  int64_t start;
  Call() {
    if (recording) {
      spin_until(now() + int64_t(c.profiled_call * (1 - c.profiled_inside)));
    }
    start = now();
  }
  int64_t finish(int64_t from, double cost) const {
    spin_until(from + int64_t(cost + (recording ? c.profiled_call * c.profiled_inside : 0)));
    return now();
  }
};

int64_t place(Stream& stream, int64_t earliest, double duration) {
  const int64_t start = std::max(earliest, stream.free);
  stream.free = start + std::max<int64_t>(1, int64_t(duration));
  stream.ends[stream.count++ % kRing] = stream.free;
  return start;
}

void wait_for_room(const Stream& stream) {
  const uint64_t queue = uint64_t(c.queue);
  if (stream.count >= queue) {
    spin_until(stream.ends[(stream.count - queue) % kRing]);
  }
}

double real_duration(double duration) {
  double took = jittered(duration, c.jitter);
  if (c.stall_chance > 0 && std::abs(normal()) > c.stall_chance) { // given as a quantile of the normal distribution
    took += c.stall;
  }
  return took;
}

// Launch a kernel or a copy on the current stream.
void launch(ActivityType type, int call, int name, double duration, int64_t bytes = 0) {
  Call api;
  Stream& stream = streams[current];
  wait_for_room(stream);
  const int64_t submitted = now();
  const int64_t earliest = std::max(submitted + int64_t(jittered(c.latency, c.latency_jitter)), stream.free + int64_t(c.gap));
  const int64_t start = place(stream, earliest, real_duration(duration)), end = stream.free;
  const int32_t id = ++correlation;
  const int64_t returned = api.finish(submitted, c.launch);
  host_row(call, api.start, returned, id, name == kToHost ? -bytes : bytes);
  device_row(type, name, start, end, id, current, bytes);
}

void synchronise(int call, int64_t when) {
  Call api;
  spin_until(when);
  const int64_t returned = api.finish(std::max(now(), when), c.sync);
  host_row(call, api.start, returned, ++correlation);
  const bool all = call == kDeviceSyncCall;
  sync_row(all ? kDeviceSync : kStreamSync, api.start, returned, correlation, all ? kMain : current);
}

double copy_duration(int64_t bytes) {
  return c.copy_latency + double(bytes) / c.bytes_per_ns;
}

} // namespace
