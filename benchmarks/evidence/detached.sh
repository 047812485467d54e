#!/bin/bash
# A command that outlives the one that began it, for machines where none may take longer than some minutes.
#
#   bash benchmarks/evidence/detached.sh FOLDER SECONDS COMMAND ...
#
# The first call begins COMMAND (NVIDIA's MPS first, where it is installed; it ends with it) and logs what the GPU does;
# every call waits until COMMAND has ended, or SECONDS, and shows where it stands. FOLDER gets log.txt, gpu.log (time,
# memory, use, power, load) and, at the end, the file `over` with the exit code.
set -euo pipefail
if [ $# -lt 3 ]; then
    echo "usage: detached.sh FOLDER SECONDS COMMAND ..." >&2
    exit 2
fi
mkdir -p "$1"
folder=$(realpath "$1") seconds=$2
shift 2

gpu_log() {
    while [ ! -e "$folder/over" ]; do
        used=$(nvidia-smi --query-gpu=memory.used,utilization.gpu,power.draw --format=csv,noheader)
        echo "$(date +%s) $used $(cut -d' ' -f1 /proc/loadavg)"
        sleep 15
    done
}

run() {
    code=0
    "$@" >"$folder/log.txt" 2>&1 || code=$?
    if [ -d "$folder/mps" ]; then
        # Or it holds the GPU for good. It waits for its clients, and one may hang.
        echo "quit -t 10" | timeout 30 nvidia-cuda-mps-control >/dev/null 2>&1 || true
    fi
    echo "$code" >"$folder/over.part"
    mv "$folder/over.part" "$folder/over" # there whole or not at all
}

if [ ! -e "$folder/begun" ]; then
    date +%s >"$folder/begun"
    touch "$folder/log.txt" # it is shown below, perhaps before COMMAND has written anything
    if command -v nvidia-cuda-mps-control >/dev/null; then
        export CUDA_MPS_PIPE_DIRECTORY="$folder/mps" CUDA_MPS_LOG_DIRECTORY="$folder/mps"
        mkdir -p "$folder/mps"
        nvidia-cuda-mps-control -d
    fi
    export folder
    export -f gpu_log run
    if command -v nvidia-smi >/dev/null; then
        setsid bash -c gpu_log >"$folder/gpu.log" 2>&1 </dev/null &
    fi
    setsid bash -c 'run "$@"' run "$@" >/dev/null 2>&1 </dev/null &
fi
until [ -e "$folder/over" ] || [ "$seconds" -le 0 ]; do
    sleep 1
    seconds=$((seconds - 1))
done
echo "$(($(date +%s) - $(cat "$folder/begun"))) s since it was begun; $([ -e "$folder/over" ] && echo "ended with $(cat "$folder/over")" || echo "it goes on")"
tail -c 3000 "$folder/log.txt"
