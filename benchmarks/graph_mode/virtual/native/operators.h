// Which operators launch kernels, how many, and of which class.

#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>

namespace {

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

} // namespace
