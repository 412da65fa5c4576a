# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154
# To be sourced on a host: runs the guest in guest/ and talks to it. The caller has die().

# How long anything may take. Emulation on a busy machine is slow.
WAIT=600

# guest_init ELF: sets QEMU, a command line that wants only its memory. The guest and its firmware need nothing else,
# and what is not there does not disturb.
guest_init() {
        QEMU=(qemu-system-x86_64 -machine pc -accel kvm -cpu host -smp 1 -nodefaults -no-user-config -display none
              -vga none -kernel "$1")
        work=$(mktemp -d)
        pids=()
        trap guest_cleanup EXIT
}

guest_cleanup() {
        local pid
        for pid in "${pids[@]}"; do
                kill "$pid" 2>/dev/null || :
        done
        rm -rf "$work"
}

# serial_open NAME: the guest's serial port, as a pair of pipes in $work.
serial_open() {
        rm -f "$work/$1.in" "$work/$1.out"
        mkfifo "$work/$1.in" "$work/$1.out"
        exec {IN}<>"$work/$1.in" {OUT}<>"$work/$1.out"
}

serial_close() { exec {IN}>&- {OUT}>&-; }

# serial_expect WORD: reads until a line begins with WORD; the rest of it comes in REST.
serial_expect() {
        local line
        while read -r -t "$WAIT" -u "$OUT" line; do
                line=${line%$'\r'}
                [[ $line != failed* ]] || die "the guest says: $line"
                [[ $line != "$1"* ]] || { REST=${line#"$1"}; return; }
        done
        die "the guest did not say '$1' within $WAIT s"
}

# serial_ready PID: until the guest is up, or the process that was to run it has ended.
serial_ready() {
        local part line='' try
        for (( try = 0; try < WAIT; )); do
                # What "read" has got when its time is up is the beginning of a line, and is not read again.
                if read -r -t 1 -u "$OUT" part; then
                        line+=$part
                        [[ $line != ready* ]] || return 0
                        [[ $line != failed* ]] || die "the guest says: $line"
                        line=''
                else
                        line+=$part
                        kill -0 "$1" 2>/dev/null || die "the guest did not start"
                        try=$(( try + 1 ))
                fi
        done
        die "the guest was not up within $WAIT s"
}

# Has the guest dirty its memory. Sets PAGES, NSEC.
guest_run() {
        printf g >&"$IN"
        serial_expect "done "
        read -r PAGES NSEC <<<"$REST"
}

# kvm_stat PID NAME: of the VM of a QEMU, its vCPUs added.
kvm_stat() {
        cat /sys/kernel/debug/kvm/"$1"-*/"$2"
}

# vm_pin PID: in bytes.
vm_pin() {
        local key value
        while read -r key value _; do
                [[ $key != VmPin: ]] || echo $(( value * 1024 ))
        done <"/proc/$1/status"
}

wait_gone() {
        local try
        for (( try = 0; try < WAIT * 10; try++ )); do
                [[ -e /proc/$1 ]] || return 0
                sleep 0.1
        done
        die "process $1 does not end"
}
