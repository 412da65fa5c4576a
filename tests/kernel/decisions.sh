# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154
# To be sourced by heal-on-host: what a decision is weighed with is measured on this host, and a VM that nobody has told
# tdpd of is adopted by a rule.

# leaf SIZE FIELD: of what "tdpctl calibrate" has measured.
leaf() { sed -nE "s/.*\{\"page_size\":$1,([^}]*)\}.*/\1/p" <<<"$CALIBRATION" | sed -nE "s/.*\"$2\":\"?([0-9a-z]*).*/\1/p"; }

explained() { tdpctl explain "$@" --json=short | sed -nE "s/.*\"$KEY\":\"?([0-9a-z-]+).*/\1/p"; }

test_calibrate() {
        local size free
        free=$(</sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages)
        KEY=fault_measured
        check "calibrate: before, costs are defaults" equal "$(explained --memory=128M --page-size=2M)" false
        CALIBRATION=$(tdpctl calibrate --json=short --quiet)
        for size in 4096 2097152; do
                check "calibrate: a fault of $size was measured" equal "$(leaf $size fault_measured)" true
                check "calibrate: a build of $size was measured" equal "$(leaf $size build_measured)" true
                check "calibrate: a fault of $size costs more than a built leaf" at_least "$(leaf $size fault_ns)" "$(leaf $size build_ns)"
        done
        check "calibrate: no page of 1G, and it is said" equal "$(leaf 1073741824 fault_measured)" false
        check "calibrate: its pages are back" comes_to "$free" cat /sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages
        check "calibrate: it leaves no VM behind" equal "$(vms)" '[]'
        check "calibrate: decisions use it" equal "$(explained --memory=128M --page-size=2M)" true
        systemctl restart tdpd.service
        check "calibrate: after a restart as well" equal "$(explained --memory=128M --page-size=2M)" true
}

adopted() { tdpctl show adopted --json=short 2>/dev/null | sed -nE "s/.*\"$1\":\"?([0-9a-z]+).*/\1/p"; }

# case 46: only what a rule names is taken.
test_adopt() {
        local other
        mkdir -p /etc/tdpd/tdpd.conf.d
        printf '[Rule vms]\nMatchName=adopt*\nDecision=always\nAdopt=yes\n' >/etc/tdpd/tdpd.conf.d/adopt.conf
        check "adopt: the rule is read" systemctl reload tdpd.service
        serial_open serial
        "${QEMU[@]}" -m 128M -machine memory-backend=ram -name stranger -S \
                -object memory-backend-memfd,id=ram,size=128M,share=on &
        other=$!
        "${QEMU[@]}" -m 256M -machine memory-backend=ram -name guest=adopted -serial "pipe:$work/serial" \
                -object memory-backend-memfd,id=ram,size=256M,share=on &
        PID=$!
        pids=("$PID" "$other")
        serial_ready "$PID"
        check "adopt: the VM that the rule names is built" comes_to built adopted state
        check "adopt: it is of that process" equal "$(adopted pid)" "$PID"
        check "adopt: the rule is kept with it" equal "$(adopted rule)" vms
        check "adopt: the log says so" grep -q 'VM adopted of user 0: adopted from process .* by rule "vms"' <(journalctl -u tdpd -o cat)
        guest_run
        check "adopt: the guest takes no fault in it" equal "$(adopted faults_since_build)" 0
        check "adopt: the VM that no rule names is left alone" equal "$(tdpctl vms --no-legend --no-pager | wc -l)" 1

        kill "$PID" "$other"
        wait_gone "$PID"
        pids=()
        serial_close
        rm /etc/tdpd/tdpd.conf.d/adopt.conf
        systemctl reload tdpd.service
        check "adopt: no VM is left in tdpd" comes_to '[]' vms
}
