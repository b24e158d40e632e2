// An accelerator that runs nothing: PyTorch believes that it has an HPU, and Kineto gets the rows that one would leave.
//
// Work is a name, an engine and a duration. A queue runs one piece after the other on the host's own clock: a piece starts
// when it was launched or when the piece before it ends, whichever is later. TPC and MME share the compute queue, DMA has its
// own. `hpu_wait` waits as an event or a stream would be waited for. As on the real device, rows that are not whole inside the profiler's
// window are not in the trace. Plain C functions, for ctypes: no Python header has to be compiled.

#include <ATen/detail/HPUHooksInterface.h>
#include <libkineto.h>
#include <output_base.h>

#include <algorithm>
#include <chrono>
#include <mutex>

using libkineto::ActivityType;

namespace at {
struct HPUHooks : HPUHooksInterface { // torch looks the class up by this name
  explicit HPUHooks(HPUHooksArgs) {}
  void init() const override {}
  bool hasHPU() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_HPU_HOOKS(HPUHooks);
} // namespace at

namespace {
enum Engine { MME, TPC, DMA };
constexpr int kTpcLanes = 3; // one TPC kernel leaves a row on each lane
constexpr int kSynapse = 32619; // Synapse's host rows stand under a small number that is no process

struct Row {
  ActivityType type;
  std::string name;
  int64_t start, end;
  int32_t device, resource;
  std::string hw_event;
};

std::mutex lock;
std::vector<Row> rows;
int64_t compute_free = 0, dma_free = 0;
int sessions = 0;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void host_row(const char* bridge, const char* synapse, int64_t start, int64_t end) {
  rows.push_back({ActivityType::PRIVATEUSE1_RUNTIME, bridge, start, end, libkineto::processId(), libkineto::systemThreadId(), ""});
  rows.push_back({ActivityType::HPU_OP, synapse, start, end, kSynapse, 5, ""});
}

class Session : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    std::lock_guard<std::mutex> guard(lock);
    start_ = now();
    ++sessions;
    auto done = [this](const Row& row) { return row.start < start_; };
    rows.erase(std::remove_if(rows.begin(), rows.end(), done), rows.end());
  }
  void stop() override {
    std::lock_guard<std::mutex> guard(lock);
    const int64_t end = now();
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start_, end, "HPU");
    for (const Row& row : rows) {
      if (row.start < start_ || row.end > end) {
        continue;
      }
      buffer_->emplace_activity(buffer_->span, row.type, row.name);
      auto& activity = *buffer_->activities.back();
      activity.startTime = row.start;
      activity.endTime = row.end;
      activity.device = row.device;
      activity.resource = row.resource;
      if (!row.hw_event.empty()) {
        activity.addMetadataQuoted("HW event name", row.hw_event);
      }
    }
  }
  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger& logger) override {
    for (const auto& activity : buffer_->activities) {
      activity->log(logger);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, 0x1000000, "/device:HPU:0", "/device:HPU:0"});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> lanes{{4000, 4000, 0, "[HD0] EDMA 0"}, {6000, 6000, 0, "[HD0] MME"}};
    for (int i = 0; i < kTpcLanes; ++i) {
      lanes.push_back({7000 + i, 7000 + i, 0, "[HD0] TPC " + std::to_string(i)});
    }
    return lanes;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }
  std::string getDeviceProperties() override { return R"({"id": 0, "name": "PRETEND GAUDI", "totalGlobalMem": 103079215104})"; }

 private:
  int64_t start_ = 0;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types, const libkineto::Config&) override {
    if (!types.count(ActivityType::HPU_OP)) {
      return nullptr; // nobody asked for ProfilerActivity.HPU
    }
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types, const libkineto::Config& c) override {
    return configure(types, c);
  }

 private:
  std::string name_ = "HPU";
  std::set<ActivityType> activities_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::HPU_OP};
};

const bool registered = [] {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  return true;
}();
} // namespace

extern "C" {
// Launch work on an engine; return when it will be done [ns since the epoch].
int64_t hpu_enqueue(const char* name, int engine, int64_t duration_ns) {
  std::lock_guard<std::mutex> guard(lock);
  const int64_t called = now();
  int64_t& queue = engine == DMA ? dma_free : compute_free;
  const int64_t start = std::max(called, queue);
  queue = start + duration_ns;
  const auto type = engine == DMA ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
  const char* event = engine == TPC ? "TPC_SPU_START_TO_SPU_HALT" : engine == MME ? "WB0_END" : "DBG_DMA_TRC_WR_DATA_LAST";
  for (int lane = 0; lane < (engine == TPC ? kTpcLanes : 1); ++lane) {
    rows.push_back({type, name, start, queue, 0, (engine == TPC ? 7000 : engine == MME ? 6000 : 4000) + lane, event});
  }
  host_row("launch_recipe", "enqueueWithExternalEventsExt (accel0)", called, std::max(now(), called + 1));
  return queue;
}

// Wait until an instant on the device's clock, that is, for what was launched before [ns since the epoch].
void hpu_wait(int64_t when_ns) {
  const int64_t called = now();
  std::this_thread::sleep_until(std::chrono::system_clock::time_point(std::chrono::nanoseconds(when_ns)));
  std::lock_guard<std::mutex> guard(lock);
  host_row("synchronizeStream", "synchronizeStream (accel0)", called, std::max(now(), called + 1));
}

// When everything that was launched so far will be done [ns since the epoch].
int64_t hpu_done_at() {
  std::lock_guard<std::mutex> guard(lock);
  return std::max(compute_free, dma_free);
}

// How often a profiler has recorded this device.
int hpu_sessions() {
  return sessions;
}
}
