#!/usr/bin/env bash
# Audits and timings on N real ranks of one host, as the directories beside this file were made.
#
#   docs/evidence/real_ranks.sh N OUT [cuda|cpu]
#
# Every run is one line with its exit status in OUT/runs.txt; one that fails does not stop the others.
# OUT/nccl-*.txt has NCCL's own words on the algorithm and the protocol of each all-reduce. On a CPU
# (gloo) the same commands run without NCCL, so that this file can be tried anywhere.
set -uo pipefail
ranks=${1:?ranks} out=${2:?directory} device=${3:-cuda}
widths=${WIDTHS:-1,8,9,12,16,20}
rows=${ROWS:-20}
geometry=${GEOMETRY:-k3}
neartie=${NEARTIE:-neartie}
mkdir -p "$out"
# NVLink multicast stays off: the sum would be the switch's, and not a schedule of the ranks.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1

run() { # NAME COMMAND...
    local name=$1 began=$SECONDS
    shift
    "$@" >"$out/$name.txt" 2>"$out/$name.err"
    echo "$name: exit $? in $((SECONDS - began)) s: $*" | tee -a "$out/runs.txt"
}

audit() { # NAME BANK... -- OPTIONS...
    local name=$1 banks=()
    shift
    while [ "$1" != -- ]; do banks+=("$1"); shift; done
    shift
    # shellcheck disable=SC2086 # NEARTIE may be several words
    run "$name" $neartie audit "${banks[@]}" --launch "$ranks" --device "$device" --no-gate \
        --rows "$widths" --out "$out/$name" "$@"
}

banks=()
for seed in 0 1 2 3 4 5; do banks+=("gaussian:geometry=$geometry,rows=$rows,seed=$seed"); done

# What NCCL chooses by itself first: where time runs out, the forced choices are what is missing.
choices=()
if [ "$device" = cuda ]; then
    read -ra choices <<<"${CHOICES-Ring:Simple Ring:LL Ring:LL128 Tree:Simple Tree:LL Tree:LL128}"
fi

nccl() { # CHOICE: one audit, with NCCL's log of what ran
    local name=nccl-${1/:/-}
    export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING,COLL NCCL_DEBUG_FILE=$out/$name.%p.log
    # For the all-reduce alone: NCCL gathers by rings only, and would refuse.
    if [ "$1" != default ]; then
        export NCCL_ALGO="ring;allreduce:${1%:*}" NCCL_PROTO="allreduce:${1#*:}"
    fi
    audit "$name" "${banks[@]}" --
    unset NCCL_ALGO NCCL_PROTO NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE
    grep -hoE 'AllReduce: [0-9]+ Bytes -> Algo [^ ]+ proto [^ ]+' "$out/$name".*.log 2>/dev/null |
        sort | uniq -c >"$out/$name.choices.txt"
}

if [ "$device" = cuda ]; then
    nccl default
    for other in pull nccl; do
        audit "push-against-$other" "${banks[@]}" -- \
            --baseline route:transport=push --candidate "route:transport=$other"
    done
else
    audit default "${banks[@]}" --
fi
# shellcheck disable=SC2086
run bench $neartie bench --launch "$ranks" --device "$device" --rows "$widths" \
    --geometry "$geometry" --out "$out/bench.json" ${BENCH_OPTIONS:-}
for choice in "${choices[@]}"; do nccl "$choice"; done
