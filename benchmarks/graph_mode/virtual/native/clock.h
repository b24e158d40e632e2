// What the device costs, the clock that everything runs by, and noise.

#pragma once

#include <cmath>
#include <cstdint>
#include <ctime>
#include <random>
#include <vector>

namespace {

struct Constants { // times in ns; the same fields, in the same order, as `Constants` in device.py
  double latency = 6000, gap = 1200, graph_gap = 900, graph_scale = 0.97;
  double replay = 9000, replay_node = 10, input_copy = 5000;
  double launch = 4000, event = 800, sync = 2000;
  double profiled_call = 2000, profiled_inside = 0.5; // what a call costs more in a profile, and the part of it inside its row
  double jitter = 0.03, latency_jitter = 0.1, stall_chance = 0, stall = 100000;
  double scale = 1, shortest = 800;
  double copy_latency = 1500, bytes_per_ns = 15;
  double queue = 1024;
  double sync_rows = 0; // whether a profile has `cuda_sync` rows, which tell streams and events (a profiler's option)
} c;

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t); // the clock of Kineto's rows
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void spin_until(int64_t when) {
  while (now() < when) {
  }
}

constexpr size_t kNormals = 1 << 16;
std::vector<float> normals;
uint64_t normal_at = 0;

void seed_normals(uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  normals.resize(kNormals);
  for (float& value : normals) {
    value = normal(generator);
  }
  normal_at = 0;
}

double normal() {
  return normals[normal_at++ % kNormals];
}

double jittered(double value, double sigma) {
  return sigma > 0 ? value * std::exp(sigma * normal() - sigma * sigma / 2) : value;
}

} // namespace
