# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# Debian userland of the amd host, in two layers: the distribution (half a minute, seldom), and an image of it
# with our packages and the kernel's modules (seconds, after each change).

USERLAND_PACKAGES=(systemd-sysv dbus udev kmod procps qemu-system-x86 numactl busybox-static strace
                   libnuma1 libjson-c5 libinih1 libprotobuf-c1 libcap-ng0)

# This machine's own sources, so that versions are those that it knows, security updates among them.
debian_sources() {
        # shellcheck disable=SC2016  # apt expands these
        apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' \
                'Created-By: Packages' 'Origin: Debian' 'Architecture: amd64' |
                grep -E ' bookworm(-updates|-security)? ' | sort -u
}

# base_build PACKAGE... TARGET
base_build() {
        local target=${*: -1} proxy packages
        local -a sources options=()

        mapfile -t sources < <(debian_sources)
        (( ${#sources[@]} )) || { echo "no sources of Debian 12 in apt: run 'apt-get update'"; return 1; }
        eval "$(apt-config shell proxy Acquire::http::Proxy)"
        [[ ! ${proxy-} ]] || options+=(--aptopt="Acquire::http::Proxy \"$proxy\"")
        packages=$(IFS=,; echo "${*:1:$#-1}")

        as_root mmdebstrap --variant=minbase --format=tar "${options[@]}" \
                --aptopt='Acquire::Languages "none"' \
                --dpkgopt='path-exclude=/usr/share/man/*' \
                --dpkgopt='path-exclude=/usr/share/info/*' \
                --dpkgopt='path-exclude=/usr/share/locale/*' \
                --dpkgopt='path-exclude=/usr/share/doc/*' \
                --dpkgopt='path-include=/usr/share/doc/*/copyright' \
                --include="$packages" bookworm "$target" "${sources[@]}"
        as_root chmod 644 "$target"
}

# Sets BASE_TAR.
base_prepare() {
        local key packages
        mapfile -t packages < <(printf '%s\n' "${USERLAND_PACKAGES[@]}" "$(product_depends)" | grep . | sort -u)
        key=$( { candidates "${packages[@]}"; debian_sources; declare -f base_build; } | hash_stdin)
        cached "base$LINK_FLAVOUR.tar" "$key" base_build "${packages[@]}"
        cache_touch
        BASE_TAR=$CACHED BASE_KEY=$key
}

image_install_product() {
        local tree=$1
        # Nothing may be started from inside the chroot.
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$tree/usr/sbin/policy-rc.d" >/dev/null
        as_root chmod 755 "$tree/usr/sbin/policy-rc.d"
        as_root mkdir -p "$tree/tmp/debs"
        as_root cp "${DEBS[@]}" "$tree/tmp/debs/"
        as_root chroot "$tree" sh -c 'DEBIAN_FRONTEND=noninteractive LC_ALL=C dpkg -i /tmp/debs/*.deb'
        # The agent insists on tdpd from here on.
        as_root touch "$tree/usr/lib/tdp-host/product"
        as_root rm -rf "$tree/tmp/debs" "$tree/usr/sbin/policy-rc.d"
}

image_build() {
        local target=$1 tree=$1.tree
        local -a mask=(serial-getty@ttyS0.service getty@tty1.service getty.target e2scrub_reap.service
                       systemd-logind.service systemd-random-seed.service systemd-update-utmp.service
                       systemd-update-utmp-runlevel.service systemd-pstore.service systemd-journal-flush.service
                       systemd-repart.service systemd-firstboot.service
                       modprobe@dm_mod.service modprobe@drm.service modprobe@efi_pstore.service
                       dpkg-db-backup.timer apt-daily.timer apt-daily-upgrade.timer fstrim.timer
                       e2scrub_all.timer systemd-tmpfiles-clean.timer)

        as_root rm -rf "$tree"
        as_root mkdir -p "$tree"
        as_root tar -xf "$BASE_TAR" -C "$tree"
        as_root mkdir -p "$tree/usr/lib/modules"
        as_root cp -r "$KERNEL_DIR/modules/$KVER" "$tree/usr/lib/modules/"
        # For the intel host only; udev would load them for the disk controller that QEMU always has.
        as_root rm -rf "$tree/usr/lib/modules/$KVER"/kernel/drivers/{ata,scsi}
        if [[ $MODULES_DIR ]]; then
                as_root install -D -m 644 -t "$tree/usr/lib/modules/$KVER/updates" "$MODULES_DIR"/kvm*.ko
        fi
        as_root cp -r "$HERE/guest/rootfs/." "$tree/"
        (( BARE )) || image_install_product "$tree"
        as_root depmod -b "$tree" "$KVER"

        # systemctl of this machine, so that masks are what its version writes.
        as_root systemctl --root="$tree" mask "${mask[@]}"
        as_root systemctl --root="$tree" enable tdp-host.service
        as_root systemctl --root="$tree" set-default multi-user.target
        echo tdp-host | as_root tee "$tree/etc/hostname" >/dev/null
        echo 0123456789abcdef0123456789abcdef | as_root tee "$tree/etc/machine-id" >/dev/null

        [[ ! $LINK_FLAVOUR ]] || link_image "$tree"

        # Runs write to a throw-away layer, so a journal would only cost time.
        as_root mke2fs -q -F -t ext4 -O ^has_journal,^resize_inode -E lazy_itable_init=1,root_owner=0:0 \
                -d "$tree" "$target" 4G
        as_root chmod 644 "$target"
        as_root rm -rf "$tree"
}

# Sets IMAGE: the root file system of the amd host.
image_prepare() {
        local key flavour=$FLAVOUR
        MODULES_DIR=
        kernel_prepare
        product_prepare
        base_prepare
        (( ! BARE )) || flavour+=-bare
        flavour+=$LINK_FLAVOUR
        modules_are_packaged || modules_prepare

        key=$( { echo "$BASE_KEY $KERNEL_KEY $flavour"
                 declare -f image_build image_install_product link_image
                 ( cd "$HERE/guest/rootfs" && find . -type f -exec sha256sum {} + | sort -k2 )
                 (( ! ${#DEBS[@]} )) || sha256sum "${DEBS[@]}" | sed "s|$RUN||"
                 [[ ! $MODULES_DIR ]] || sha256sum "$MODULES_DIR"/kvm*.ko | sed "s|$RUN||"
               } | hash_stdin)
        cached "image-$flavour.ext4" "$key" image_build
        cache_touch
        IMAGE=$CACHED
}
