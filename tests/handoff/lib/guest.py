# SPDX-License-Identifier: LGPL-2.1-or-later
"""The guest of dirty.c: its serial port, which comes to host a from wherever it runs, and what its ticks mean."""

import socket
import statistics
import threading
import time

from hosts import WAIT, Failed

PORT = 5000


class Line:
    """One connection of a QEMU's serial port."""

    def __init__(self, sock):
        self.sock = sock
        self.ticks = []   # (time, number)
        self.lines = []   # what is not ticks
        self.closed = False
        self.in_log = False  # its lines are digits, too


class Guest:
    """Listens for the QEMUs that run the guest, one after the other."""

    def __init__(self, port=PORT, address='a'):
        """Those QEMUs reach it at that address; port 0 is any."""
        self.lines = []
        self._address = address
        self._next = 0  # the number of the next tick
        self._arrived = threading.Condition()
        self._server = socket.create_server(('', port))
        threading.Thread(target=self._accept, daemon=True).start()

    def args(self):
        port = self._server.getsockname()[1]
        return ['-chardev', f'socket,id=serial,host={self._address},port={port}', '-serial', 'chardev:serial']

    def _accept(self):
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            line = Line(sock)
            with self._arrived:
                self.lines.append(line)
                self._arrived.notify_all()
            threading.Thread(target=self._read, args=(line,), daemon=True).start()

    def _read(self, line):
        text = b''
        while True:
            try:
                data = line.sock.recv(65536)
            except OSError:
                data = b''
            now = time.monotonic()
            with self._arrived:
                if not data:
                    line.closed = True
                    self._arrived.notify_all()
                    return
                text = self._take(line, text + data, now)
                self._arrived.notify_all()

    def _take(self, line, text, now):
        """Digits at the beginning of a line are ticks, all else waits for its end."""
        while text:
            if text[:1].isdigit() and not line.in_log:
                number = text[0] - ord('0')
                # One that could not be sent is missing.
                while self._next % 10 != number:
                    self._next += 1
                line.ticks.append((now, self._next))
                self._next += 1
                text = text[1:]
                continue
            end = text.find(b'\n')
            if end < 0:
                break
            words = text[:end].decode(errors='replace').strip()
            text = text[end + 1:]
            if words:
                line.lines.append(words)
                line.in_log = words.startswith('log') or (line.in_log and words != 'end')
        return text

    def connected(self, n):
        """The n-th connection, from 0."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.lines) > n, WAIT):
                raise Failed(f'QEMU number {n + 1} does not connect its serial port within {WAIT} s')
            return self.lines[n]

    def expect(self, word, line=None, seconds=WAIT):
        """Until a line begins with the word; the rest of it."""
        line = line or self.lines[-1]

        def found():
            while line.lines:
                said = line.lines.pop(0)
                if said.startswith('failed'):
                    raise Failed(f'the guest says: {said}')
                if said.startswith(word):
                    return said
            return 'gone' if line.closed else None
        with self._arrived:
            said = self._arrived.wait_for(found, seconds)
        if not said or said == 'gone':
            raise Failed(f"the guest {'is gone' if said else f'did not in {seconds} s'}: '{word}' was expected")
        return said[len(word):].split()

    def tell(self, command, line=None):
        (line or self.lines[-1]).sock.sendall(command.encode())

    def ticks_after(self, line, n, seconds=WAIT):
        """Waits for n more ticks."""
        with self._arrived:
            want = len(line.ticks) + n
            if not self._arrived.wait_for(lambda: len(line.ticks) >= want or line.closed, seconds) or line.closed:
                raise Failed(f'the guest {"is gone" if line.closed else f"does not tick {n} times in {seconds} s"}')

    def go(self, line=None):
        self.tell('g', line)

    def stop(self, line=None):
        self.tell('s', line)
        self.expect('stopped', line)

    def sum(self, line=None):
        """The checksum of a guest that does not run; Failed if its memory is not what it must be."""
        self.tell('c', line)
        found, expected, wrong = map(int, self.expect('sum', line))
        if found != expected or wrong:
            raise Failed(f"the guest's memory is not what it was: sum {found}, expected {expected}, {wrong} pages are wrong")
        return found

    def log(self, line=None):
        """(writes, seconds) of each tick; the first is number 0 unless there were more than the guest keeps."""
        line = line or self.lines[-1]
        self.tell('l', line)
        n = int(self.expect('log', line)[0])
        ticks = []
        while len(ticks) < n:
            writes, usec = self.expect('', line)
            ticks.append((int(writes), int(usec) / 1e6))
        self.expect('end', line)
        return ticks

    def close(self):
        for line in self.lines:
            line.sock.close()
        # Or the thread that waits keeps the port.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def rate(ticks):
    seconds = sum(t for _, t in ticks)
    return sum(w for w, _ in ticks) / seconds if seconds else 0


def back_at_full_speed(ticks, settle=3.0, window=5, share=0.9):
    """
    What the first seconds after a resume were like, by the guest's own clock: (seconds until it was at full speed,
    seconds of work lost until "settle", full speed in writes per second). Full speed is what it does after "settle".
    """
    passed, later = 0.0, len(ticks)
    for i, (_, seconds) in enumerate(ticks):
        passed += seconds
        if passed >= settle:
            later = i + 1
            break
    if len(ticks) - later < 20:
        raise Failed(f'only {len(ticks)} ticks after the resume: too few to know what full speed is')
    full = statistics.median(w / t for w, t in ticks[later:] if t)

    until, lost = 0.0, 0.0
    for writes, seconds in ticks[:later]:
        lost += max(0.0, seconds - writes / full)
    for i in range(len(ticks) - window):
        if rate(ticks[i:i + window]) >= share * full:
            break
        until += ticks[i][1]
    return until, lost, full
