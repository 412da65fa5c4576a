# SPDX-License-Identifier: LGPL-2.1-or-later
"""Two hosts on one machine: each has a bus and folders of its own, and a stand-in for SSH that runs the other end here."""

import contextlib
import json
import os
import shutil

from lab import Lab, TDPCTL

SSH = '''#!/bin/bash
# (ssh -xT [-p PORT] -- HOST COMMAND)
while [[ $1 != 127.0.0.1 ]]; do shift; done
shift
source "{folder}/environment"
if [[ $1 == systemd-stdio-bridge ]]; then
        exec systemd-stdio-bridge --bus-path="$DBUS_SYSTEM_BUS_ADDRESS"
fi
exec "$@"
'''


class Hosts(Lab):
    def setUp(self):
        super().setUp()
        for program in ('qemu-system-x86_64', 'systemd-stdio-bridge', 'dbus-daemon'):
            if not shutil.which(program):
                self.skipTest(f'{program} is not installed')
        self.far_folder = self.folder / 'far'
        self.far_folder.mkdir()
        self.environment.update(self.host_environment(self.folder))
        self.far_environment = {**self.environment, **self.host_environment(self.far_folder)}
        for here, there in ((self.folder, self.far_folder), (self.far_folder, self.folder)):
            ssh = here / 'bin/ssh'
            ssh.parent.mkdir()
            ssh.write_text(SSH.format(folder=there))
            ssh.chmod(0o755)
            (here / 'environment').write_text(''.join(
                f'export {key}="{value}"\n' for key, value in self.host_environment(here).items()))

    @staticmethod
    def host_environment(folder):
        return {'PATH': f'{folder}/bin:{os.path.dirname(TDPCTL)}:{os.environ["PATH"]}', 'TDPCTL_RUNTIME_DIR': f'{folder}/run',
                'DBUS_SYSTEM_BUS_ADDRESS': f'unix:path={folder}/bus'}

    @contextlib.contextmanager
    def far(self):
        """What is called within is called on the other host."""
        near = self.folder, self.environment
        self.folder, self.environment = self.far_folder, self.far_environment
        try:
            yield
        finally:
            self.folder, self.environment = near

    def vm_json(self, folder, name='db'):
        try:
            return json.loads((folder / f'run/{name}/vm.json').read_text())
        except FileNotFoundError:
            return None
