# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154
# How benchmarks that compare our KVM modules with the unpatched ones are run: both in one boot of an emulated host.

ROOT=$(readlink -f "$HERE/../../..")
NAME=$(basename "$HERE")

usage() {
        cat <<END
Usage: tests/bench/$NAME/run [OPTION]... [-- OPTION-OF-${NAME^^}-BENCH...]

  --arch amd|intel     one of them only
  --quick              less of it, and on amd only unless --arch says otherwise
  --modules DIR        modules from DIR/ours and DIR/unpatched, instead of building them
  --out DIR            default: build/bench
END
}

die() { echo "bench: $*" >&2; exit 2; }

# Sets ARCHS, OUT, MODULES and BENCH_ARGS.
bench_options() {
        local quick=''
        ARCHS=() OUT=$ROOT/build/bench MODULES='' BENCH_ARGS=()
        while (( $# )); do
                case $1 in
                --arch|--modules|--out)
                        (( $# > 1 )) || die "$1: a value is missing"
                        case $1=$2 in
                        --arch=amd|--arch=intel)        ARCHS=("$2");;
                        --modules=?*)                   MODULES=$(readlink -f "$2");;
                        --out=?*)                       OUT=$2;;
                        *)                              usage >&2; die "$1 '$2': not one of the choices";;
                        esac
                        shift 2;;
                --quick)        quick=1 BENCH_ARGS+=(--quick); shift;;
                -h|--help)      usage; exit 0;;
                --)             shift; BENCH_ARGS+=("$@"); break;;
                *)              usage >&2; die "'$1': unknown";;
                esac
        done

        if (( ! ${#ARCHS[@]} )); then
                ARCHS=(amd)
                [[ $quick ]] || ARCHS+=(intel)
        fi
        mkdir -p "$OUT/$NAME"
        OUT=$(readlink -f "$OUT/$NAME")
        "$ROOT/tests/bench/lib/compile" "$OUT/$NAME-bench" "$HERE"/*.c
        [[ $MODULES ]] || { MODULES=$OUT/modules; "$ROOT/tests/bench/lib/collect-modules" "$MODULES"; }
}

# bench_host ARCH: leaves what "on-host" puts into out/ in $OUT/ARCH.
bench_host() {
        local -a host args=("${BENCH_ARGS[@]}")
        case $1 in
        # On one CPU nothing else runs meanwhile.
        amd)    host=(--cpus 1 --icount --timeout 1500);;
        intel)  host=(--timeout 4800) args=("${INTEL_ARGS[@]}" "${args[@]}");;
        esac
        rm -rf "${OUT:?}/$1"
        "$ROOT/tests/host/run" --arch "$1" --kernel stock --bare "${host[@]}" \
                --memory 3G --hugepages "$HUGEPAGES" \
                --copy "$OUT/$NAME-bench" --copy "$MODULES/ours" --copy "$MODULES/unpatched" \
                --copy "$ROOT/tests/bench/lib/with-modules" --copy "$HERE/on-host" --out "$OUT/$1" -- \
                ./on-host "${args[@]}"
}
