# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# The amd host: QEMU's TCG with SVM and NPT.

amd_prepare() {
        image_prepare
        (( ! SELFTESTS )) || selftests_disk_prepare
}

selftests_disk_build() {
        mke2fs -q -F -t ext4 -O ^has_journal -d "$SELFTESTS_DIR" "$1" 1G
}

selftests_disk_prepare() {
        local key name=selftests
        [[ $SERIES == 6.12 ]] || name+=-$SERIES
        selftests_prepare
        key=$( { declare -f selftests_disk_build
                 ( cd "$SELFTESTS_DIR" && find . -type f -exec sha256sum {} + | sort -k2 ); } | hash_stdin)
        cached "$name.ext4" "$key" selftests_disk_build
        cache_touch
        SELFTESTS_DISK=$CACHED
}

# Arguments of the kernel that both machines share, in CMDLINE.
host_cmdline() {
        CMDLINE=("console=ttyS0,115200" panic=-1 mitigations=off nokaslr audit=0 log_buf_len=4M loglevel=8)
        # A loaded developer's machine must not look like a stuck CPU.
        CMDLINE+=(watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120)
        [[ $KERNEL == stock ]] || CMDLINE+=("kvm.gtdp=$GTDP")
        CMDLINE+=("${PARAMS[@]}")
        (( ! HUGE_1G )) || CMDLINE+=(hugepagesz=1G "hugepages=$HUGE_1G")
        (( ! HUGE_2M )) || CMDLINE+=(hugepagesz=2M "hugepages=$HUGE_2M")
}

# Sets SMP and NUMA: memory and CPUs in even parts, the remainder to the last node.
amd_numa() {
        local node size=$(( MEMORY_MB / NODES )) share=$(( CPUS / NODES )) first=0 last
        SMP=$CPUS NUMA=()
        (( NODES > 1 )) || return 0
        # A socket on two nodes makes the kernel complain.
        SMP=$CPUS,sockets=$(( CPUS % NODES ? CPUS : NODES ))
        for (( node = 0; node < NODES; node++ )); do
                (( node < NODES - 1 )) || size=$(( MEMORY_MB - size * node ))
                NUMA+=(-object "memory-backend-ram,id=m$node,size=${size}M")
                last=$(( node == NODES - 1 ? CPUS - 1 : first + share - 1 ))
                if (( last >= first )); then
                        NUMA+=(-numa "node,nodeid=$node,memdev=m$node,cpus=$first-$last")
                else
                        NUMA+=(-numa "node,nodeid=$node,memdev=m$node")
                fi
                first=$(( last + 1 ))
        done
}

# Starts QEMU in the background and sets MACHINE to its pid.
amd_start() {
        local -a args
        local port

        host_cmdline
        amd_numa
        # ext4, NVMe and virtio's ports are built into the kernel: no initramfs is needed.
        CMDLINE+=(root=/dev/nvme0n1 rootfstype=ext4 rw rootwait systemd.show_status=false)
        CMDLINE+=(sysrq_always_enabled) # for amd_tell
        (( ! NO_TDPD )) || CMDLINE+=(systemd.mask=tdpd.service)
        link_start

        # thread=multi with more than one CPU crashes QEMU 7.2 in the kernel's code patching.
        args=(-nodefaults -no-user-config -display none -vga none -no-reboot
              -accel "tcg,thread=single" -cpu "$CPU"
              -smp "$SMP" -m "${MEMORY_MB}M" "${NUMA[@]}"
              -kernel "$KERNEL_DIR/vmlinuz" -append "${CMDLINE[*]}"
              -serial "file:$RUN/kernel.log"
              -monitor "unix:$RUN/monitor,server=on,wait=off"
              -drive "if=none,id=root,file=$IMAGE,format=raw,snapshot=on,werror=report"
              -device "nvme,serial=root,drive=root"
              -drive "if=none,id=input,file=$RUN/input.tar,format=raw,readonly=on"
              -device "virtio-blk-pci,serial=input,drive=input"
              -device virtio-serial-pci)
        for port in status stdout stderr out; do
                args+=(-chardev "file,id=$port,path=$RUN/$port" -device "virtserialport,chardev=$port,name=tdp.$port")
        done
        (( ! SELFTESTS )) || args+=(-drive "if=none,id=selftests,file=$SELFTESTS_DISK,format=raw,readonly=on"
                                    -device "virtio-blk-pci,serial=selftests,drive=selftests")
        args+=("${LINK_ARGS[@]}")
        (( ! ICOUNT )) || args+=(-icount "shift=1,sleep=off")

        # The machine dies with this script, whatever kills it. The throw-away layer goes where there is room.
        TMPDIR=$RUN setpriv --pdeathsig KILL -- qemu-system-x86_64 "${args[@]}" </dev/null >>"$RUN/machine.log" 2>&1 &
        MACHINE=$!
}

# Has a machine that does not answer tell what it is doing, into the kernel's log and machine.log: registers first, as a kernel
# that hangs with interrupts off tells nothing more.
amd_tell() {
        "$HERE/lib/monitor" "$RUN/monitor" "info status" "info registers -a" "sendkey alt-sysrq-w" "sendkey alt-sysrq-l" \
                >>"$RUN/machine.log" 2>&1 || :
        sleep 3
}
