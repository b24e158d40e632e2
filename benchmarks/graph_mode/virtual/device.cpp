// A virtual asynchronous device for PyTorch: real host work launches kernels that are nothing but an interval on the clock.
//
// Every aten operator of `kOps` that the host runs launches one or more kernels when it ends (inside its row in a trace). Work
// goes to streams, each a queue on the wall clock: no worker thread, no simulated time. A launch starts at
// max(submitted + latency, end of the stream's last + gap); the host is held only by the cost of the call, by a full queue
// (until the oldest of `queue` pieces ends) and by synchronisation, all of them spin waits. `vd_replay` plays a block of
// captured work after one call. Kineto gets rows as it would from CUDA: runtime calls, kernels and copies with correlations,
// arrows and streams; compiled with VIRTUAL_HPU, as from Habana's plugin in eager mode, which has neither of the three. Plain C functions, for ctypes. One host thread launches at a time; nothing here is safe for more.

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>
#include <libkineto.h>
#include <output_base.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>

#ifdef VIRTUAL_HPU
#include <ATen/detail/HPUHooksInterface.h>

namespace at {
struct HPUHooks : HPUHooksInterface { // torch looks the class up by this name; without it the profiler refuses to record an HPU
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
#endif

using libkineto::ActivityType;

namespace {

// ---------------------------------------------------------------------------------------------------------- constants

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

// -------------------------------------------------------------------------------------------------------------- clock

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

// ---------------------------------------------------------------------------------------------------------- operators

struct Class {
  const char* name;
  double median, sigma; // of a kernel's base duration [ns]; one draw for each position in the step
};
enum Kind { GEMM, CONV, ELEMENTWISE, REDUCE, NORM, SOFTMAX, ATTENTION, GATHER, SCATTER, FOREACH, FUSED, COPY, FILL, CONCAT };
constexpr Class kClasses[] = {
    {"gemm", 9000, 0.8}, {"convolution", 12000, 0.8}, {"elementwise", 2500, 0.5}, {"reduce", 3500, 0.5},
    {"normalise", 5000, 0.5}, {"softmax", 4000, 0.4}, {"attention", 15000, 0.6}, {"gather", 3500, 0.5},
    {"scatter", 6000, 0.6}, {"multi_tensor", 7000, 0.5}, {"fused_optimizer", 15000, 0.5}, {"copy", 2500, 0.5},
    {"fill", 1800, 0.3}, {"concatenate", 3000, 0.4}};

struct Op {
  Kind kind;
  int kernels;
};

const std::unordered_map<std::string_view, Op> kOps = [] {
  std::unordered_map<std::string_view, Op> ops;
  auto add = [&](Kind kind, int kernels, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      ops[name] = {kind, kernels};
    }
  };
  add(GEMM, 1, {"addmm", "mm", "bmm", "baddbmm", "addmm_", "addmv", "mv", "dot", "addbmm"});
  add(CONV, 1, {"_convolution"});
  add(CONV, 2, {"convolution_backward"});
  add(NORM, 1, {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "native_layer_norm", "native_group_norm"});
  add(NORM, 2, {"native_batch_norm_backward", "batch_norm_backward", "native_layer_norm_backward", "native_group_norm_backward"});
  add(ELEMENTWISE, 1,
      {"relu", "relu_", "threshold_backward", "gelu", "gelu_backward", "silu", "silu_", "silu_backward", "tanh", "tanh_backward",
       "sigmoid", "sigmoid_backward", "add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "pow", "sqrt", "sqrt_",
       "rsqrt", "exp", "neg", "abs", "addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_", "where", "maximum", "minimum",
       "clamp", "clamp_", "clamp_min", "eq", "ne", "lt", "le", "gt", "ge", "native_dropout", "native_dropout_backward",
       "bernoulli_", "mse_loss", "mse_loss_backward", "binary_cross_entropy_with_logits", "masked_fill", "masked_fill_",
       "reciprocal", "reciprocal_", "leaky_relu", "leaky_relu_backward", "hardtanh", "hardtanh_backward"});
  add(REDUCE, 1,
      {"sum", "mean", "max", "amax", "norm", "linalg_vector_norm", "max_pool2d_with_indices", "_adaptive_avg_pool2d", "avg_pool2d",
       "nll_loss_forward", "argmax", "var_mean"});
  add(REDUCE, 1, {"max_pool2d_with_indices_backward", "_adaptive_avg_pool2d_backward", "avg_pool2d_backward", "nll_loss_backward"});
  add(SOFTMAX, 1, {"_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"});
  add(ATTENTION, 1, {"_scaled_dot_product_flash_attention_for_cpu"});
  add(ATTENTION, 2, {"_scaled_dot_product_flash_attention_for_cpu_backward"});
  add(GATHER, 1, {"embedding", "index_select", "gather", "index", "_embedding_bag_forward_only", "_embedding_bag"});
  add(SCATTER, 1, {"embedding_dense_backward", "index_add_", "scatter_add_", "index_put_", "_index_put_impl_", "_embedding_bag_dense_backward"});
  add(FUSED, 1, {"_fused_adamw_", "_fused_adam_", "_fused_sgd_"});
  add(COPY, 1, {"copy_"});
  add(FILL, 1, {"fill_", "zero_"});
  add(CONCAT, 1, {"cat"});
  return ops;
}();

constexpr int kForeachChunk = 32; // tensors that one multi-tensor kernel takes

// ------------------------------------------------------------------------------------------------------------- streams

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

// ---------------------------------------------------------------------------------------------------------------- rows

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

// ------------------------------------------------------------------------------------------------------------ launching

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

// ------------------------------------------------------------------------------------------------- what the host's work does

bool enabled = false;
int host_only = 0, depth = 0, inside = 0;
uint64_t position = 0, case_seed = 0, launches = 0;
double busy = 0;
std::unordered_map<uint64_t, std::vector<float>> draws; // for each position, by class
struct Upload {
  bool armed = false, blocking = false;
  int64_t bytes = 0;
} upload;
bool read_armed = false;

double base_duration(Kind kind) {
  // One draw for each position in a part of the step and class, the same in every step and mode.
  const uint64_t at = position++;
  auto& row = draws[at];
  if (row.empty()) {
    std::mt19937_64 generator(case_seed * 1000003 + at);
    std::normal_distribution<float> normal;
    for (const Class& cls : kClasses) {
      row.push_back(float(cls.median * std::exp(cls.sigma * normal(generator))));
    }
  }
  return std::max(c.shortest, double(row[kind]) * c.scale);
}

void launch_kernels(Kind kind, int kernels, const char* op) {
  static std::unordered_map<std::string_view, int> kernel_names;
  auto it = kernel_names.find(op);
  if (it == kernel_names.end()) {
    const int lane = kind == GEMM || kind == CONV || kind == ATTENTION ? kMme : kTpc;
    const int number = number_of(std::string("virtual_device::") + kClasses[kind].name + "<" + op + ">", lane);
    it = kernel_names.emplace(std::string_view(*new std::string(op)), number).first;
  }
  for (int k = 0; k < kernels; ++k) {
    const double duration = base_duration(kind);
    ++launches;
    busy += duration;
    if (segment >= 0) {
      segments[segment].push_back({Node::KERNEL, current, 0, duration, it->second});
    }
    launch(ActivityType::CONCURRENT_KERNEL, kLaunchCall, it->second, duration);
  }
}

enum { NOTHING, KERNELS, MULTI_TENSOR, READ };

int look_up(const char* name, const Op** op) {
  if (std::strncmp(name, "aten::", 6) != 0) {
    return NOTHING;
  }
  name += 6;
  if (std::strncmp(name, "_foreach_", 9) == 0) {
    return MULTI_TENSOR;
  }
  if (std::strcmp(name, "_local_scalar_dense") == 0) {
    return READ;
  }
  auto it = kOps.find(name);
  if (it == kOps.end()) {
    return NOTHING;
  }
  *op = &it->second;
  return KERNELS;
}

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& function) {
  if (enabled && !host_only) {
    const Op* op = nullptr;
    if (look_up(function.name(), &op) != NOTHING) {
      ++depth;
    }
  }
  return nullptr;
}

void ends(const at::RecordFunction& function, at::ObserverContext*) {
  if (!enabled || host_only) {
    return;
  }
  const Op* op = nullptr;
  const int what = look_up(function.name(), &op);
  if (what == NOTHING || --depth > 0) {
    inside += what == KERNELS;
    return;
  }
  depth = 0;
  const int tensors = std::exchange(inside, 0);
  if (what == READ) {
    if (std::exchange(read_armed, false)) {
      launch(ActivityType::GPU_MEMCPY, kCopyCall, kToHost, copy_duration(4), 4);
      synchronise(kStreamSyncCall, streams[current].free);
    } // else a scalar that lives on the host, such as an optimizer's step count
  } else if (what == MULTI_TENSOR) {
    launch_kernels(FOREACH, std::max(1, (tensors + kForeachChunk - 1) / kForeachChunk), function.name());
  } else if (op->kind == COPY && upload.armed) {
    upload.armed = false;
    launch(ActivityType::GPU_MEMCPY, kCopyCall, upload.blocking ? kToDeviceSlow : kToDevice, copy_duration(upload.bytes), upload.bytes);
    if (upload.blocking) {
      synchronise(kStreamSyncCall, streams[current].free);
    }
  } else {
    launch_kernels(op->kind, op->kernels, function.name());
  }
}

// ------------------------------------------------------------------------------------------------------------- profiler

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
    rows.clear();
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
    rows.clear();
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

void reset_streams() {
  for (Stream& stream : streams) {
    stream.free = 0;
    stream.count = 0;
    stream.ends.assign(kRing, 0);
  }
  events.assign(256, {});
  current = kMain;
}

const bool registered = [] {
  seed_normals(0);
  reset_streams();
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  // Global observers run before the profiler's own, at both ends: a launch stands inside its operator's row.
  at::addGlobalCallback(at::RecordFunctionCallback(begins, ends).scopes({at::RecordScope::FUNCTION}));
  return true;
}();

// ---------------------------------------------------------------------------------------------------- the second thread

// Runs the backward pass as torch's engine runs it for accelerators: on a thread of its own, with the caller's thread-local
// state (the profiler among it), while the caller waits.
struct Helper {
  std::mutex lock;
  std::condition_variable changed;
  void (*work)() = nullptr;
  const at::ThreadLocalState* state = nullptr;

  Helper() {
    std::thread([this] {
      for (;;) {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [this] { return work != nullptr; });
        {
          at::ThreadLocalStateGuard local(*state);
          work();
        }
        work = nullptr;
        changed.notify_all();
      }
    }).detach();
  }

  void run(void (*what)()) {
    const at::ThreadLocalState mine;
    std::unique_lock<std::mutex> guard(lock);
    state = &mine;
    work = what;
    changed.notify_all();
    changed.wait(guard, [this] { return work == nullptr; });
  }
};

} // namespace

extern "C" {
// Begin a new case: constants of the machine, and the seed that kernel durations are drawn with.
void vd_configure(const Constants* constants, uint64_t seed) {
  c = *constants;
  if (seed != case_seed || draws.empty()) {
    case_seed = seed;
    draws.clear();
    seed_normals(seed);
  }
  reset_streams();
}

void vd_enable(int on) {
  enabled = on;
  depth = inside = 0;
}

// Operators between the two calls run on the host and launch nothing.
void vd_host_begin() {
  ++host_only;
}
void vd_host_end() {
  --host_only;
}

// A part of the step begins: positions count from 0 again. While capturing, its work goes to the segment of this number.
void vd_part(int part) {
  position = uint64_t(part) << 32;
  if (capturing) {
    segment = part;
  }
}

// The next aten::copy_ goes to the device; the next read of a scalar comes from it.
void vd_next_upload(int64_t bytes, int blocking) {
  upload = {true, blocking != 0, bytes};
}
void vd_next_read() {
  read_armed = true;
}

void vd_set_stream(int stream) {
  current = stream;
}
int vd_stream() {
  return current;
}
void vd_record_event(int event) {
  if (segment >= 0) {
    segments[segment].push_back({Node::RECORD, current, event, 0, 0});
  }
  Call api;
  events[event] = {std::max(streams[current].free, now()), current, ++correlation};
  host_row(kRecordCall, api.start, api.finish(api.start, c.event), correlation);
}
void vd_wait_event(int event) {
  if (segment >= 0) {
    segments[segment].push_back({Node::WAIT, current, event, 0, 0});
  }
  Call api;
  streams[current].free = std::max(streams[current].free, events[event].reached);
  const int64_t returned = api.finish(api.start, c.event);
  host_row(kWaitCall, api.start, returned, ++correlation);
  sync_row(kEventWait, api.start, returned, correlation, current, events[event]);
}

void vd_synchronize() {
  int64_t last = 0;
  for (const Stream& stream : streams) {
    last = std::max(last, stream.free);
  }
  synchronise(kDeviceSyncCall, last);
}

// Begin or end a capture: what was captured before is forgotten when one begins.
void vd_capture(int on) {
  if (on) {
    segments.clear();
    graphs.clear();
  }
  capturing = on;
  segment = -1;
}

// While capturing: put work into another segment from here on, with positions that go on.
void vd_segment(int number) {
  segment = number;
}

// Make a graph of captured segments, in this order; return its number.
int vd_graph(const int* numbers, int count) {
  std::vector<Node> nodes;
  for (int i = 0; i < count; ++i) {
    const auto& more = segments[numbers[i]];
    nodes.insert(nodes.end(), more.begin(), more.end());
  }
  graphs.push_back(std::move(nodes));
  return int(graphs.size()) - 1;
}

int vd_graph_kernels(int graph) {
  int kernels = 0;
  for (const Node& node : graphs[graph]) {
    kernels += node.what == Node::KERNEL;
  }
  return kernels;
}

// Copy an input into a graph's static memory.
void vd_input_copy(int64_t bytes) {
  Call api;
  Stream& stream = streams[current];
  wait_for_room(stream);
  const int64_t submitted = now();
  const int64_t earliest = std::max(submitted + int64_t(c.latency), stream.free + int64_t(c.gap));
  const int64_t start = place(stream, earliest, c.copy_latency + double(bytes) / (c.bytes_per_ns * 50)), end = stream.free;
  const int32_t id = ++correlation;
  host_row(kCopyCall, api.start, api.finish(submitted, c.input_copy), id);
  device_row(ActivityType::GPU_MEMCPY, kOnDevice, start, end, id, current, bytes);
}

void vd_replay(int graph) {
  const std::vector<Node>& nodes = graphs[graph];
  if (nodes.empty()) {
    return;
  }
  Call api;
  Stream& origin = streams[current];
  wait_for_room(origin);
  const int64_t submitted = api.finish(now(), c.replay + c.replay_node * vd_graph_kernels(graph));
  const int32_t id = ++correlation;
  const int64_t begin = std::max(submitted + int64_t(jittered(c.latency, c.latency_jitter)), origin.free + int64_t(c.gap));
  int64_t free[kStreams], last = begin;
  bool used[kStreams] = {};
  std::fill(free, free + kStreams, begin);
  std::unordered_map<int, int64_t> recorded;
  for (const Node& node : nodes) {
    if (node.what == Node::RECORD) {
      recorded[node.event] = free[node.stream];
    } else if (node.what == Node::WAIT) {
      const auto it = recorded.find(node.event);
      free[node.stream] = std::max(free[node.stream], it == recorded.end() ? begin : it->second);
    } else {
      const int64_t start = free[node.stream] + (used[node.stream] ? int64_t(c.graph_gap) : 0);
      used[node.stream] = true;
      free[node.stream] = start + std::max<int64_t>(1, int64_t(real_duration(node.duration) * c.graph_scale));
      last = std::max(last, free[node.stream]);
      device_row(ActivityType::CONCURRENT_KERNEL, node.name, start, free[node.stream], id, node.stream, 0);
    }
  }
  origin.free = last; // a graph is one piece of work in its stream's queue
  origin.ends[origin.count++ % kRing] = last;
  host_row(kGraphCall, api.start, now(), id);
}

// Run something on the second thread and wait for it.
void vd_on_thread(void (*work)()) {
  static Helper* const helper = new Helper; // its thread never ends
  helper->run(work);
}

// Kernels launched by operators, and their durations without jitter [ns], since the last call.
void vd_totals(double* totals) {
  totals[0] = double(launches);
  totals[1] = busy;
  launches = 0;
  busy = 0;
}
}
