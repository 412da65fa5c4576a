# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154
# A host of a pair: a network card whose other end is the other host, and what it takes to have ssh on it. Other hosts
# have none of it.
#
# LINK is a directory: its name is that of the host, its files are for the host (guest/rootfs/usr/lib/tdp-host/link).
# The cards' sockets are beside it.

link_prepare() {
        LINK_FLAVOUR='' LINK_ARGS=()
        [[ $LINK ]] || return 0
        [[ $KERNEL_KIND == distribution ]] || die_usage "--link: only for the distribution's kernels; others have no network"
        LINK=$(readlink -f "$LINK")
        LINK_FLAVOUR=-pair
        HOST_MODULES+=(virtio_net)
        USERLAND_PACKAGES+=(openssh-client openssh-server python3)
}

# link_image TREE: sshd starts when the host's keys are there.
link_image() {
        as_root systemctl --root="$1" disable ssh.service
        as_root systemctl --root="$1" mask ssh.socket
        as_root sh -c "rm -f '$1'/etc/ssh/ssh_host_*"
}

# Adds to CMDLINE, sets LINK_ARGS.
link_start() {
        local name number other=a
        [[ $LINK ]] || return 0
        name=${LINK##*/}
        [[ $name != a ]] || other=b
        number=$(( $(printf '%d' "'$name") - 96 ))
        # tdpd knows hosts by it.
        CMDLINE+=("systemd.hostname=$name" "systemd.machine_id=$(printf '%032x' $(( 0x7d9 + number )))")
        # Datagrams, as neither has to be there first. Large ones: each costs the emulator the same.
        LINK_ARGS=(-netdev "dgram,id=link,local.type=unix,local.path=$LINK.net,remote.type=unix,remote.path=${LINK%/*}/$other.net"
                   -device "virtio-net-pci,netdev=link,mac=52:54:00:00:00:0$number,host_mtu=60000,romfile=")
}
