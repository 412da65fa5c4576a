# SPDX-License-Identifier: LGPL-2.1-or-later
"""QEMU's monitor protocol, by TCP. Events are kept with the time of their arrival."""

import json
import socket
import threading
import time

from hosts import WAIT, Failed, wait_for


class Qmp:
    def __init__(self, host, port):
        self.events = []  # (time, name, data)
        self._answers = []
        self._arrived = threading.Condition()
        self._socket = wait_for(lambda: self._connect(host, port), f'QEMU on {host} to answer on port {port}')
        self._file = self._socket.makefile('r')
        threading.Thread(target=self._read, daemon=True).start()
        self.command('qmp_capabilities')

    @staticmethod
    def _connect(host, port):
        try:
            sock = socket.create_connection((host, port), timeout=WAIT)
        except OSError:
            return None
        sock.settimeout(None)
        return sock

    def _read(self):
        try:
            for line in self._file:
                message = json.loads(line)
                with self._arrived:
                    if 'event' in message:
                        self.events.append((time.monotonic(), message['event'], message.get('data')))
                    elif 'QMP' not in message:
                        self._answers.append(message)
                    self._arrived.notify_all()
        except (OSError, ValueError):
            pass
        with self._arrived:
            self._answers.append(None)
            self._arrived.notify_all()

    def command(self, name, **arguments):
        request = {'execute': name}
        if arguments:
            request['arguments'] = {key.replace('_', '-'): value for key, value in arguments.items()}
        try:
            self._socket.sendall(json.dumps(request).encode() + b'\n')
        except OSError as e:
            raise Failed(f'QEMU is gone: {name}: {e}') from None
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._answers, WAIT):
                raise Failed(f'QEMU does not answer {name} within {WAIT} s')
            answer = self._answers.pop(0)
        if answer is None:
            self._answers.append(None)
            raise Failed(f'QEMU is gone: {name}')
        if 'error' in answer:
            raise Failed(f"QEMU refuses {name}: {answer['error']['desc']}")
        return answer['return']

    def event(self, name, seconds=WAIT):
        """The time of the first such event, waited for."""
        def found():
            return next((when for when, what, _ in self.events if what == name), None)
        with self._arrived:
            when = self._arrived.wait_for(found, seconds)
        if not when:
            raise Failed(f'QEMU: no event {name} within {seconds} s')
        return when

    def close(self):
        self._socket.close()
