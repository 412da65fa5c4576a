# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# Things that are made once for a set of inputs: build/host/cache/NAME-KEY, KEY being a hash of the inputs.

CACHE=$BUILD/cache

# Hash of stdin, short enough for a file name.
hash_stdin() {
        sha256sum | cut -c1-16
}

# Hash of the contents and names of files.
hash_files() {
        sha256sum -- "$@" | hash_stdin
}

# Only images need root: chroot, device nodes, owners.
as_root() {
        if (( EUID == 0 )); then
                "$@"
        elif command -v sudo >/dev/null; then
                sudo "$@"
        else
                die_host "this step needs root to make an image, and there is no sudo: $*"
        fi
}

# cached NAME KEY BUILDER [ARG]...: sets CACHED to the path; runs BUILDER ARG... TARGET if it is not there.
# The lock is per NAME, so that simultaneous runs build once. TARGET appears under its name only when whole.
cached() {
        local name=$1 key=$2 target lock log
        shift 2

        CACHED=$CACHE/$name-$key
        [[ ! -e $CACHED ]] || return 0

        mkdir -p "$CACHE"
        target=$CACHE/.new-$name-$key log=$CACHE/$name.log
        exec {lock}>"$CACHE/$name.lock"
        flock "$lock"
        if [[ ! -e $CACHED ]]; then
                say "making $name"
                [[ ! -e $target ]] || as_root rm -rf "$target"
                # Not in a condition: errexit has to stay on inside the builder.
                # It keeps the lock, so that nobody starts the same while an aborted one is still winding up.
                ( set -e; "$@" "$target" ) >"$log" 2>&1 & BUILDER=$!
                if ! wait "$BUILDER"; then
                        tail -n 40 "$log" >&2
                        die_host "making $name failed; all of its output is in $log"
                fi
                BUILDER=
                mv "$target" "$CACHED"
                cache_expire "$name"
        fi
        exec {lock}>&-
}

# Versions not used for an hour go; younger ones may belong to a run that is just starting.
cache_expire() {
        local old
        for old in "$CACHE/$1"-*; do
                [[ $old != "$CACHED" && $old -ot $CACHE/.expired ]] || continue
                as_root rm -rf "$old"
        done
}

cache_touch() {
        mkdir -p "$CACHE"
        touch -d '1 hour ago' "$CACHE/.expired"
        touch -c "$CACHED"
}
