# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# One run: its private directory, the machine, the streams that come out of it, and its end.
#
# What the guest says on the status stream: "start", "ready", then "exit N"; or "failed REASON".

# An idle machine needs 15 s (amd) or a minute (intel); intel was seen to need more than 400 s on a busy one.
BOOT_TIMEOUT=800

# Signals must leave nothing behind: no machine, no readers, no files.
session_close() {
        local pid
        [[ ! ${BUILDER-} ]] || pkill -TERM -P "$BUILDER" || :
        for pid in "${BUILDER-}" "${MACHINE-}" "${STREAMS[@]}"; do
                [[ ! $pid ]] || kill "$pid" 2>/dev/null || :
        done
        [[ ! ${MACHINE-} ]] || { kill -KILL "$MACHINE" 2>/dev/null || :; wait "$MACHINE" 2>/dev/null || :; }
        [[ ! ${RUN-} ]] || rm -rf "$RUN"
}

session_open() {
        STREAMS=() MACHINE='' BUILDER='' STATUS='' READY='' KLOG_MARK=''
        mkdir -p "$BUILD"
        # Left by tools that were killed outright; no run lasts a day.
        find "$BUILD" -maxdepth 1 -name 'run.*' -mmin +1440 -exec rm -rf {} +
        RUN=$(mktemp -d "$BUILD/run.XXXXXX")
        trap session_close EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        trap 'exit 129' HUP
}

quote() {
        local arg
        for arg; do
                printf " '%s'" "${arg//\'/\'\\\'\'}"
        done
}

# input.tar: root/ is what appears in /root, command is a shell script; want-out and want-selftests exist if they are wanted.
session_pack_input() {
        local in=$RUN/input file
        mkdir -p "$in/root/out"
        for file in "${COPY[@]}"; do
                cp -aH -- "$file" "$in/root/" || die_host "--copy '$file' could not be copied"
        done
        { echo '#!/bin/sh'; echo "exec$(quote "${COMMAND[@]}")"; } >"$in/command"
        chmod 755 "$in/command"
        [[ ! $OUT ]] || touch "$in/want-out"
        (( ! SELFTESTS )) || touch "$in/want-selftests"
        [[ ! $LINK ]] || cp -aH -- "$LINK" "$in/link"
        tar -cf "$RUN/input.tar" -C "$in" --owner=0 --group=0 .
}

# session_start STARTER: streams first, since opening one waits for its reader.
session_start() {
        if (( PREPARE )); then
                detail "everything is there"
                exit 0
        fi
        mkfifo "$RUN/status" "$RUN/stdout" "$RUN/stderr"
        : >"$RUN/out"
        : >"$RUN/kernel.log"
        exec {STATUS_FD}<>"$RUN/status"
        cat "$RUN/stdout" {STATUS_FD}>&- & STREAMS+=($!)
        cat "$RUN/stderr" {STATUS_FD}>&- >&2 & STREAMS+=($!)
        # A machine that never opens its end must not leave the readers waiting.
        exec {HOLD_STDOUT}>"$RUN/stdout" {HOLD_STDERR}>"$RUN/stderr"
        STARTED=$SECONDS
        "$1"
        if (( VERBOSE )); then
                tail -n +1 -F "$RUN/kernel.log" --pid="$MACHINE" >&2 2>/dev/null & STREAMS+=($!)
        fi
}

session_handle() {
        case $1 in
        start)          ;;
        ready)          READY=$(( SECONDS - STARTED ))
                        detail "up after $READY s";;
        'exit '*)       STATUS=${1#exit };;
        'failed '*)     STATUS=125
                        say "the host did not come up: ${1#failed }";;
        *)              say "the host said '$1', which means nothing here";;
        esac
}

# Until there is a status, the machine is gone, or time is up.
session_wait() {
        local line partial='' limit
        while [[ ! $STATUS ]]; do
                if read -r -t 0.5 -u "$STATUS_FD" line; then
                        session_handle "$partial${line%$'\r'}"
                        partial=''
                        continue
                fi
                partial+=$line
                [[ ! $UNTIL || ! -e $UNTIL ]] || { STATUS=0; break; }

                if ! kill -0 "$MACHINE" 2>/dev/null; then
                        # Its last words may still be in the pipe.
                        while [[ ! $STATUS ]] && read -r -t 0.1 -u "$STATUS_FD" line; do
                                session_handle "${line%$'\r'}"
                        done
                        [[ ! $STATUS ]] || break
                        say "the host went down before COMMAND ended"
                        tail -n 20 "$RUN/machine.log" >&2
                        STATUS=125 LOST=1
                        break
                fi

                limit=$TIMEOUT
                [[ $READY ]] || limit=$(( TIMEOUT < BOOT_TIMEOUT ? TIMEOUT : BOOT_TIMEOUT ))
                if (( SECONDS - STARTED >= limit )); then
                        say "timed out after $limit s $([[ $READY ]] && echo "(COMMAND was running)" || echo "(the host was not up)")"
                        STATUS=125 LOST=1
                        # What it is made to tell now is no complaint.
                        cp "$RUN/kernel.log" "$RUN/kernel.log.until"
                        ! declare -F "${ARCH}_tell" >/dev/null || "${ARCH}_tell"
                fi
        done
}

session_finish() {
        local stream
        # The guest has handed over everything before it tells the status.
        kill "$MACHINE" 2>/dev/null || :
        wait "$MACHINE" 2>/dev/null || :
        MACHINE=''
        exec {HOLD_STDOUT}>&- {HOLD_STDERR}>&-
        for stream in "${STREAMS[@]}"; do
                wait "$stream" 2>/dev/null || :
        done
        STREAMS=()

        if [[ $OUT ]]; then
                mkdir -p "$OUT"
                cp "$RUN/kernel.log" "$OUT/kernel.log"
                [[ ! -s $RUN/out ]] || tar -xf "$RUN/out" -C "$OUT" --no-same-owner ||
                        die_host "the results that came out of the host are not whole"
        fi

        [[ -e $RUN/kernel.log.until ]] || cp "$RUN/kernel.log" "$RUN/kernel.log.until"
        if ! klog_check "$RUN/kernel.log.until" "$KLOG_MARK"; then
                [[ $STATUS != 0 ]] || STATUS=1
        fi
        if [[ ${LOST-} ]]; then
                say "what the emulator said:"
                grep -v -E "warning: TCG doesn't support|^(YMM|FPR|DR|R[A-DS0189]|[C-GS]S =|LDT|TR |[GI]DT|CR0|EFER|FCW)" "$RUN/machine.log" | tail -n 80 | cut -c 1-200 >&2
                say "end of the kernel's log:"
                tail -n 30 "$RUN/kernel.log.until" | tr -d '\r' >&2
                tail -n "+$(( $(wc -l <"$RUN/kernel.log.until") + 1 ))" "$RUN/kernel.log" | tr -d '\r' | head -n 150 >&2
        fi
        exit "$STATUS"
}
