// What a profiler is told: host and device rows, kept while one records.

#pragma once

#include <libkineto.h>
#include <string>
#include <unordered_map>
#include "streams.h"

namespace {

using libkineto::ActivityType;

struct Row {
  ActivityType type;
  int name;
  int64_t start, end, bytes;
  int32_t correlation, stream; // stream -1: a host row
  int32_t thread;
  uint64_t external;
  Event waited_for; // of a `cuda_sync` row
};
std::vector<Row> rows;
std::vector<std::string> names;
std::vector<int> lanes; // engine of each name, on an HPU
constexpr int kDma = 4000, kMme = 6000, kTpc = 7000, kTpcRows = 3; // a TPC kernel leaves a row on each lane
std::unordered_map<std::string, int> name_numbers;
bool recording = false;
int sessions = 0; // how often a profiler has recorded the device
int32_t correlation = 0;
std::vector<uint64_t> external_ids;

int number_of(const std::string& name, int lane = kDma) {
  auto [it, fresh] = name_numbers.try_emplace(name, int(names.size()));
  if (fresh) {
    names.push_back(name);
    lanes.push_back(lane);
  }
  return it->second;
}

const int kLaunchCall = number_of("cudaLaunchKernel"), kCopyCall = number_of("cudaMemcpyAsync"),
          kStreamSyncCall = number_of("cudaStreamSynchronize"), kDeviceSyncCall = number_of("cudaDeviceSynchronize"),
          kRecordCall = number_of("cudaEventRecord"), kWaitCall = number_of("cudaStreamWaitEvent"),
          kGraphCall = number_of("cudaGraphLaunch"), kToDevice = number_of("Memcpy HtoD (Pinned -> Device)"),
          kToDeviceSlow = number_of("Memcpy HtoD (Pageable -> Device)"), kToHost = number_of("Memcpy DtoH (Device -> Pageable)"),
          kOnDevice = number_of("Memcpy DtoD (Device -> Device)"), kEventWait = number_of("Stream Wait Event"),
          kStreamSync = number_of("Stream Sync"), kDeviceSync = number_of("Context Sync");

void host_row(int name, int64_t start, int64_t end, int32_t id, int64_t bytes = 0) {
  if (recording) {
    rows.push_back({ActivityType::CUDA_RUNTIME, name, start, end, bytes, id, -1, libkineto::systemThreadId(),
                    external_ids.empty() ? 0 : external_ids.back()});
  }
}

void device_row(ActivityType type, int name, int64_t start, int64_t end, int32_t id, int stream, int64_t bytes) {
  if (recording) {
    rows.push_back({type, name, start, end, bytes, id, stream, 0, external_ids.empty() ? 0 : external_ids.back()});
  }
}

void sync_row(int name, int64_t start, int64_t end, int32_t id, int stream, const Event& event = {}) {
  if (recording && c.sync_rows > 0) {
    rows.push_back({ActivityType::CUDA_SYNC, name, start, end, 0, id, stream, 0, external_ids.empty() ? 0 : external_ids.back(), event});
  }
}

} // namespace
