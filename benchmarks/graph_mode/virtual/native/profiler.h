// The rows in the form of CUDA or of an HPU, through Kineto's interface for child profilers.

#pragma once

#include <functional>
#include <libkineto.h>
#include <memory>
#include <output_base.h>
#include <set>
#include "rows.h"

namespace {

using Activity = libkineto::GenericTraceActivity;
using Add = std::function<Activity&(ActivityType, const std::string&)>; // add an activity with the times of a row

void describe_cuda(const Row& row, const Add& add) {
  Activity& activity = add(row.type, names[row.name]);
  const bool host = row.stream < 0;
  activity.id = row.correlation;
  activity.device = host ? libkineto::processId() : 0;
  activity.resource = host ? row.thread : row.stream;
  activity.threadId = row.thread;
  if (row.type != ActivityType::CUDA_SYNC) {
    activity.flow.id = row.correlation;
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = host;
  }
  if (row.type == ActivityType::CUDA_SYNC) {
    activity.id = int32_t(row.external); // without an arrow Kineto writes it as the external id
  } else if (row.external) {
    activity.addMetadata("External id", row.external);
  }
  activity.addMetadata("correlation", row.correlation);
  if (host) {
    return;
  }
  activity.addMetadata("device", 0);
  activity.addMetadata("context", 1);
  activity.addMetadata("stream", row.stream);
  if (row.type == ActivityType::GPU_MEMCPY) {
    activity.addMetadata("bytes", row.bytes);
  }
  if (row.type == ActivityType::CUDA_SYNC) {
    activity.addMetadataQuoted("cuda_sync_kind", names[row.name]);
  }
  if (row.waited_for.stream >= 0) {
    activity.addMetadata("wait_on_stream", row.waited_for.stream);
    activity.addMetadata("wait_on_cuda_event_record_corr_id", row.waited_for.correlation);
  }
}

// Rows of the bridge and of Synapse under it, and one row for each engine lane: nothing tells which launch a device row belongs to.
void describe_hpu(const Row& row, const Add& add) {
  constexpr int kSynapse = 32619; // Synapse's host rows stand under a small number that is no process
  auto common = [&](Activity& activity, int recipe) {
    activity.addMetadata("recipeId", recipe);
    activity.addMetadataQuoted("recipeName", "");
    activity.addMetadataQuoted("streamHandle", "0x54fa000000000002");
  };
  if (row.stream < 0) {
    const bool copy = row.name == kCopyCall, launch = row.name == kLaunchCall || row.name == kGraphCall;
    const char* bridge = copy ? (row.bytes < 0 ? "copy_hpu_D2H" : "copy_hpu_H2D") : launch ? "launch_recipe" : "synchronizeStream";
    const char* synapse = copy ? "memcpyAsync" : launch ? "enqueueWithExternalEventsExt (accel0)" : "synchronizeStream (accel0)";
    Activity& above = add(ActivityType::PRIVATEUSE1_RUNTIME, bridge);
    above.device = libkineto::processId();
    above.resource = above.threadId = row.thread;
    Activity& below = add(ActivityType::HPU_OP, synapse);
    below.device = kSynapse;
    below.resource = 5;
    common(below, 0);
    return;
  }
  const int lane = lanes[row.name];
  const char* event = lane == kTpc ? "TPC_SPU_START_TO_SPU_HALT" : lane == kMme ? "WB0_END" : "DBG_DMA_TRC_WR_DATA_LAST";
  for (int i = 0; i < (lane == kTpc ? kTpcRows : 1); ++i) {
    Activity& activity = add(row.type, names[row.name]);
    activity.device = 0;
    activity.resource = lane + i;
    activity.addMetadataQuoted("HW event name", event);
    common(activity, 1000 + row.name);
  }
}

#ifdef VIRTUAL_HPU
constexpr bool kHpu = true;
#else
constexpr bool kHpu = false;
#endif

class Session : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    start_ = now();
    ++sessions;
    std::erase_if(rows, [this](const Row& row) { return row.start < start_; }); // what is queued still comes into the window
    rows.reserve(1 << 18);
    external_ids.clear();
    recording = true;
  }
  void stop() override {
    recording = false;
    const int64_t end = now();
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start_, end, "virtual device");
    for (const Row& row : rows) {
      if (row.start < start_ || row.end > end) {
        continue;
      }
      (kHpu ? describe_hpu : describe_cuda)(row, [&](ActivityType type, const std::string& name) -> Activity& {
        buffer_->emplace_activity(buffer_->span, type, name);
        Activity& activity = *buffer_->activities.back();
        activity.startTime = row.start;
        activity.endTime = row.end;
        return activity;
      });
    }
    std::erase_if(rows, [end](const Row& row) { return row.start < end; });
  }
  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger& logger) override {
    for (const auto& activity : buffer_->activities) {
      activity->log(logger);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    const libkineto::DeviceInfo gpu{0, 0x1000000, "python3", "GPU 0"}, hpu{0, 0x1000000, "/device:HPU:0", "/device:HPU:0"};
    return std::make_unique<libkineto::DeviceInfo>(kHpu ? hpu : gpu);
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> found;
    if (kHpu) {
      found.push_back({kDma, kDma, 0, "[HD0] EDMA 0"});
      found.push_back({kMme, kMme, 0, "[HD0] MME"});
      for (int i = 0; i < kTpcRows; ++i) {
        found.push_back({kTpc + i, kTpc + i, 0, "[HD0] TPC " + std::to_string(i)});
      }
      return found;
    }
    for (int i = 0; i < kStreams; ++i) {
      if (streams[i].count) {
        found.push_back({i, i, 0, "stream " + std::to_string(i)});
      }
    }
    return found;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }
  std::string getDeviceProperties() override { return R"({"id": 0, "name": "VIRTUAL DEVICE", "totalGlobalMem": 85899345920})"; }
  void pushCorrelationId(uint64_t id) override { external_ids.push_back(id); }
  void popCorrelationId() override {
    if (!external_ids.empty()) {
      external_ids.pop_back();
    }
  }

 private:
  int64_t start_ = 0;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types, const libkineto::Config&) override {
    if (!types.count(kHpu ? ActivityType::HPU_OP : ActivityType::CONCURRENT_KERNEL)) {
      return nullptr; // nobody asked for the device
    }
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types, const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  std::string name_ = "virtual device";
  std::set<ActivityType> activities_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::CUDA_RUNTIME, ActivityType::CUDA_SYNC,
                                     ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::HPU_OP};
};

} // namespace
