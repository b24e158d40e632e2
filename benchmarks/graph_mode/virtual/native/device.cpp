// A virtual asynchronous device for PyTorch: real host work launches kernels that are nothing but an interval on the clock.
//
// Every aten operator of `kOps` that the host runs launches one or more kernels when it ends (inside its row in a trace). Work
// goes to streams, each a queue on the wall clock: no worker thread, no simulated time. A launch starts at
// max(submitted + latency, end of the stream's last + gap); the host is held only by the cost of the call, by a full queue
// (until the oldest of `queue` pieces ends) and by synchronisation, all of them spin waits. `vd_replay` plays a block of
// captured work after one call. Kineto gets rows as it would from CUDA: runtime calls, kernels and copies with correlations,
// arrows and streams; compiled with VIRTUAL_HPU, as from Habana's plugin in eager mode, which has none of the three.
//
// This file: what operators do, and plain C functions for ctypes. One host thread launches at a time; nothing is safe for more.

#include <ATen/record_function.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "helper.h"
#include "launch.h"
#include "operators.h"
#include "profiler.h"

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

namespace {

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

const bool registered = [] {
  seed_normals(0);
  reset_streams();
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  // Global observers run before the profiler's own, at both ends: a launch stands inside its operator's row.
  at::addGlobalCallback(at::RecordFunctionCallback(begins, ends).scopes({at::RecordScope::FUNCTION}));
  return true;
}();

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

// Launch a kernel of a known length, with what any launch costs.
void vd_spin(int64_t duration) {
  static const int name = number_of("spin_kernel", kTpc);
  launch(ActivityType::CONCURRENT_KERNEL, kLaunchCall, name, double(duration));
}

void vd_set_stream(int stream) {
  current = stream;
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

// Put work of a known length on an engine (`kDma`, `kMme` or `kTpc`), without latency, gap or jitter; return when it will be done
// [ns since the epoch]. For tests that hold a trace against all that was launched, so it leaves a row even if it is launched before a
// profiler starts, as long as it starts later. Copies have a queue of their own.
int64_t vd_enqueue(const char* name, int engine, int64_t duration) {
  const int64_t called = now();
  Stream& stream = streams[engine == kDma ? kMain + 1 : kMain];
  const int64_t start = place(stream, called, double(duration));
  const auto type = engine == kDma ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
  rows.push_back({type, number_of(name, engine), start, stream.free, 0, ++correlation, kMain, 0, 0});
  host_row(kLaunchCall, called, std::max(now(), called + 1), correlation);
  return stream.free;
}

// Wait until an instant on the device's clock, as for an event behind work that ends then [ns since the epoch]. Sleeps, so that a
// test on a busy machine keeps its turn.
void vd_wait(int64_t when) {
  const int64_t called = now();
  std::this_thread::sleep_until(std::chrono::system_clock::time_point(std::chrono::nanoseconds(when)));
  host_row(kStreamSyncCall, called, std::max(now(), called + 1), ++correlation);
}

int vd_sessions() {
  return sessions;
}

// Kernels launched by operators, and their durations without jitter [ns], since the last call.
void vd_totals(double* totals) {
  totals[0] = double(launches);
  totals[1] = busy;
  launches = 0;
  busy = 0;
}
}
