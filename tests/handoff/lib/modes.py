# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a host does with second-level mappings: KVM's modules loaded anew, tdpd there or not."""

from hosts import wait_for

# of kvm, of kvm_amd
MODULES = {
    'global': ('gtdp=allow', 'npt=1'),
    'on-demand': ('gtdp=off', 'npt=1'),
    'shadow': ('gtdp=allow', 'npt=0'),
}


def tdpd_answers(host):
    return host.run('tdpctl', 'status', '--json=short', check=False).returncode == 0


def start_tdpd(host):
    host.sh('systemctl unmask --runtime tdpd.service; systemctl reset-failed tdpd.service; systemctl start tdpd.service')
    wait_for(lambda: tdpd_answers(host), f'tdpd on {host.name}')


def stop_tdpd(host):
    host.sh('systemctl mask --runtime tdpd.service; systemctl stop tdpd.service')


def set_mode(host, mode):
    kvm, vendor = MODULES[mode]
    host.sh(f'systemctl stop tdpd.service && modprobe -r kvm_amd kvm && modprobe kvm {kvm} && modprobe kvm_amd {vendor}')
    start_tdpd(host)
