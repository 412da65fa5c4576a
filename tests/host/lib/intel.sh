# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# The intel host: Bochs with VMX and EPT, started from a CD with the kernel and an initramfs of busybox. With Debian the
# initramfs only goes on to the image of the amd host.

# Results come back on a disk of this size.
OUT_MB=256

# Uncompressed: unpacking costs the emulated machine more than reading.
pack_cpio() {
        ( cd "$1" && find . -print | busybox cpio -o -H newc 2>/dev/null )
}

initramfs_build() {
        local target=$1 tree=$1.tree

        rm -rf "$tree"
        mkdir -p "$tree/bin" "$tree/lib/modules"
        cp "$(command -v busybox)" "$tree/bin/busybox"
        cp "$HERE/guest/initramfs/init" "$tree/init"
        cp -r "$KERNEL_DIR/modules/$KVER" "$tree/lib/modules/"
        if [[ $MODULES_DIR ]]; then
                install -D -m 644 -t "$tree/lib/modules/$KVER/updates" "$MODULES_DIR"/kvm*.ko
        fi
        depmod -b "$tree" "$KVER"
        pack_cpio "$tree" >"$target"
        rm -rf "$tree"
}

intel_prepare() {
        local key name=initramfs-$FLAVOUR
        if (( DEBIAN )); then
                image_prepare
                MODULES_DIR='' name+=-debian # the image has them
        else
                kernel_prepare
                modules_prepare
        fi
        (( ! SELFTESTS )) || selftests_prepare

        key=$( { echo "$KERNEL_KEY $FLAVOUR"
                 declare -f initramfs_build pack_cpio
                 sha256sum "$(command -v busybox)" "$HERE/guest/initramfs/init"
                 [[ ! $MODULES_DIR ]] || sha256sum "$MODULES_DIR"/kvm*.ko | sed "s|$RUN||"
               } | hash_stdin)
        cached "$name" "$key" initramfs_build
        cache_touch
        INITRAMFS=$CACHED
}

# Bochs reads everything from a CD: GRUB, kernel, initramfs with the command and its files behind it.
intel_iso() {
        local iso=$RUN/iso
        mkdir -p "$iso/boot/grub" "$RUN/extra"
        mv "$RUN/input" "$RUN/extra/input"
        TOKEN=$RANDOM$RANDOM$RANDOM
        echo "$TOKEN" >"$RUN/extra/input/token"
        (( ! DEBIAN )) || touch "$RUN/extra/input/want-debian"
        if (( SELFTESTS )); then
                mkdir -p "$RUN/extra/opt"
                cp -r "$SELFTESTS_DIR" "$RUN/extra/opt/kvm-selftests"
        fi
        { cat "$INITRAMFS"; pack_cpio "$RUN/extra"; } >"$iso/boot/initramfs"
        cp "$KERNEL_DIR/vmlinuz" "$iso/boot/vmlinuz"
        cat >"$iso/boot/grub/grub.cfg" <<EOF
set timeout=0
menuentry host {
linux /boot/vmlinuz ${CMDLINE[*]}
initrd /boot/initramfs
}
EOF
        grub-mkrescue -o "$RUN/host.iso" "$iso" >"$RUN/machine.log" 2>&1 || {
                cat "$RUN/machine.log" >&2
                die_host "grub-mkrescue failed: are grub-pc-bin, xorriso and mtools installed?"
        }
        rm -rf "$iso" "$RUN/extra"
}

# Bochs keeps 2G in memory; what the guest uses beyond goes to a temporary file.
# clock: sync=none makes time a count of instructions. It is built with its debugger, hence the file with 'c'.
intel_bochsrc() {
        local n
        local -a disks places=(ata0-slave ata1-master)
        cat >"$RUN/bochsrc" <<EOF
plugin_ctrl: unmapped=true, biosdev=true, speaker=false, extfpuirq=true, parallel=false, serial=true
config_interface: textconfig
display_library: rfb, options="timeout=0"
memory: guest=$MEMORY_MB, host=$(( MEMORY_MB < 2048 ? MEMORY_MB : 2048 ))
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
boot: cdrom
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata1: enabled=1, ioaddr1=0x170, ioaddr2=0x370, irq=15
ata0-master: type=cdrom, path="$RUN/host.iso", status=inserted
cpu: model=$CPU, count=1, ips=100000000, reset_on_triple_fault=0
clock: sync=none
com1: enabled=1, mode=file, dev=$RUN/kernel.log
com2: enabled=1, mode=file, dev=$RUN/stdout
log: $RUN/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
EOF
        echo c >"$RUN/debugger"
        disks=()
        (( ! DEBIAN )) || disks+=("volatile, path=\"$IMAGE\", journal=\"$RUN/journal\"")
        if [[ $OUT ]]; then
                truncate -s "${OUT_MB}M" "$RUN/out"
                disks+=("flat, path=\"$RUN/out\"")
        fi
        for (( n = 0; n < ${#disks[@]}; n++ )); do
                echo "${places[n]}: type=disk, mode=${disks[n]}" >>"$RUN/bochsrc"
        done
}

# Starts Bochs in the background and sets MACHINE to its pid.
intel_start() {
        host_cmdline
        CMDLINE+=(rdinit=/init)
        (( ! DEBIAN )) || CMDLINE+=(systemd.show_status=false)
        # The init script raises it again.
        CMDLINE=("${CMDLINE[@]/loglevel=8/loglevel=5}")
        intel_iso
        intel_bochsrc

        TMPDIR=$RUN setpriv --pdeathsig KILL -- bochs -q -f "$RUN/bochsrc" -rc "$RUN/debugger" </dev/null >>"$RUN/machine.log" 2>&1 &
        MACHINE=$!

        # Bochs' CPU makes the kernel complain early (topology, size of XSAVE): judge from our first process on.
        KLOG_MARK="tdp-host-$TOKEN: start"

        # There is no port for the status: it is in the kernel's log, under a name that nobody can guess.
        tail -n +1 -s 0.2 -F "$RUN/kernel.log" --pid="$MACHINE" 2>/dev/null |
                sed -u -n "s/.*tdp-host-$TOKEN: //p" >"$RUN/status" &
        STREAMS+=($!)
}
