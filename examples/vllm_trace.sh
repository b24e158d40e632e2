#!/bin/sh
# A vLLM server (0.13 or newer): its profiler writes a trace per worker; prefill and decode are kinds of steps.
# Older servers take the directory from the variable VLLM_TORCH_PROFILER_DIR instead of --profiler-config.
set -eu
MODEL=${1:?usage: vllm_trace.sh MODEL}

vllm serve "$MODEL" --profiler-config "{\"profiler\": \"torch\", \"torch_profiler_dir\": \"$PWD/traces\"}" & server=$!
trap 'kill "$server"' EXIT
until curl -sf localhost:8000/health; do sleep 2; done

# A few requests suffice; --profile starts and stops the profiler.
vllm bench serve --model "$MODEL" --profile --num-prompts 4

hpuprof analyze traces/
