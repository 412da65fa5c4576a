# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# The distribution's kernels, unpacked from their packages and never installed here; and our KVM modules for them.

# What the hosts get from the distribution's modules. Few, so that udev has nothing else to load at boot.
HOST_MODULES=(kvm kvm-amd kvm-intel virtio_blk loop msr cpuid tun vhost_net sd_mod ata_piix)

# The version that our modules are built for: both must come from the same place.
kernel_version() {
        if [[ -x $ROOT/kernel/build-modules ]]; then
                KVER=$("$ROOT/kernel/build-modules" --kernel "$SERIES" --print-kver) ||
                        die_host "kernel/build-modules --kernel $SERIES --print-kver failed"
        else
                KVER=$(apt-cache search --names-only "^linux-image-${SERIES/./\\.}\..*-cloud-amd64-unsigned\$" |
                       sed 's/^linux-image-\(.*\)-unsigned .*/\1/' | sort -V | tail -n 1)
        fi
        [[ $KVER ]] || die_host "no linux-image-$SERIES.*-cloud-amd64-unsigned in apt: run 'apt-get update'"
}

# The version of each package that apt would install.
candidates() {
        apt-cache policy "$@" | awk '/^[^ ]/ { name = $1 } /Candidate:/ { print name $2 }'
}

kernel_unpack() {
        local target=$1 name module

        mkdir -p "$target/deb"
        cd "$target/deb" || return
        apt-get -q -o APT::Sandbox::User=root download "linux-image-$KVER-unsigned"
        dpkg -x ./*.deb all
        [[ -d all/usr/lib/modules ]] || { mkdir -p all/usr; mv all/lib all/usr/lib; }
        ln -sfn usr/lib all/lib
        cd "$target" || return
        cp deb/all/boot/vmlinuz-"$KVER" vmlinuz
        depmod -b deb/all "$KVER"

        mkdir -p "modules/$KVER"
        for name in "${HOST_MODULES[@]}"; do
                modprobe -d "$target/deb/all" -S "$KVER" --show-depends "$name"
        done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r module; do
                module=${module#"$target/deb/all/"}
                module=${module#*"lib/modules/$KVER/"}
                install -D -m 644 "deb/all/lib/modules/$KVER/$module" "modules/$KVER/$module"
        done
        cp "deb/all/lib/modules/$KVER"/modules.{builtin,builtin.modinfo,order} "modules/$KVER/"
        rm -rf deb

        # Unpacking them on the emulated machine would take seconds of each boot.
        find modules -name '*.xz' -exec xz -d {} +
}

# Sets KVER, KERNEL_DIR (vmlinuz and modules/KVER) and KERNEL_KEY.
distribution_kernel_prepare() {
        local package version key name=kernel
        kernel_version
        if [[ $SERIES == 6.1 ]]; then
                name+=-6.1
                # Built into the later kernel.
                HOST_MODULES+=(virtio_pci virtio_console)
        fi
        name+=$LINK_FLAVOUR
        package=linux-image-$KVER-unsigned
        version=$(candidates "$package")
        [[ $version && $version != *'(none)' ]] || die_host "apt does not have $package: run 'apt-get update', then scripts/install-deps for the headers of a newer one"
        key=$( { echo "$version" "${HOST_MODULES[@]}"; declare -f kernel_unpack; } | hash_stdin)
        cached "$name" "$key" kernel_unpack
        cache_touch
        KERNEL_DIR=$CACHED KERNEL_KEY=$key
}

# Sets MODULES_DIR: our kvm*.ko, empty if the kernel comes with them. The build decides by itself what is out of date.
distribution_modules_prepare() {
        local lock built=$ROOT/build/modules
        [[ $SERIES == 6.12 ]] || built+=-$SERIES
        [[ -x $ROOT/kernel/build-modules ]] ||
                die_host "kernel/build-modules is not there: our modules need it; try --kernel stock"
        mkdir -p "$BUILD"
        # The packages and "make modules" use the same folder, so it is built once.
        "$ROOT/kernel/build-modules" --kernel "$SERIES" --out "$built" >"$RUN/modules.log" 2>&1 || {
                tail -n 40 "$RUN/modules.log" >&2
                die_host "kernel/build-modules failed"
        }
        # Copies: another build may replace them while they are being installed. This is its lock.
        MODULES_DIR=$RUN/modules
        mkdir -p "$MODULES_DIR"
        exec {lock}>"$built/.lock"
        flock "$lock"
        cp "$built"/kvm{,-amd,-intel}.ko "$MODULES_DIR/" ||
                die_host "kernel/build-modules left no modules in ${built#"$ROOT/"}"
        exec {lock}>&-
}

kernel_prepare() {
        "${KERNEL_KIND}_kernel_prepare"
}

modules_prepare() {
        MODULES_DIR=
        [[ $KERNEL == stock ]] || "${KERNEL_KIND}_modules_prepare"
}

# Sets SELFTESTS_DIR: the static KVM selftests.
selftests_prepare() {
        local lock
        [[ -x $ROOT/kernel/build-selftests ]] || die_host "kernel/build-selftests is not there: --selftests needs it"
        SELFTESTS_DIR=$BUILD/selftests
        [[ $SERIES == 6.12 ]] || SELFTESTS_DIR+=-$SERIES
        mkdir -p "$SELFTESTS_DIR"
        exec {lock}>"$SELFTESTS_DIR.lock"
        flock "$lock"
        "$ROOT/kernel/build-selftests" --kernel "$SERIES" --out "$SELFTESTS_DIR" {lock}>&- >"$SELFTESTS_DIR.log" 2>&1 || {
                tail -n 40 "$SELFTESTS_DIR.log" >&2
                die_host "kernel/build-selftests failed; all of its output is in $SELFTESTS_DIR.log"
        }
        exec {lock}>&-
}
