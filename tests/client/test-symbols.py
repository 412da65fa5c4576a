#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What libtdp exports is what its version script says, what its header declares, and what libtdp(3) tells of.

  test-symbols.py LIBRARY VERSION-SCRIPT
"""

import pathlib
import re
import subprocess
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
LIBRARY, SCRIPT = sys.argv[1], pathlib.Path(sys.argv[2])


def declared():
    header = (TOP / 'client/include/tdp/tdp.h').read_text()
    header = re.sub(r'/\*.*?\*/|^#.*?[^\\]$|^#define(.*\\\n)+.*$', '', header, flags=re.S | re.M)
    return set(re.findall(r'\b(tdp_\w+)\(', header))


class Symbols(unittest.TestCase):
    def setUp(self):
        self.versions = {name: version for version, body in re.findall(r'^(LIBTDP_[\d.]+) \{(.*?)^\}', SCRIPT.read_text(), re.M | re.S)
                         for name in re.findall(r'^\s+(tdp_\w+);', body, re.M)}
        self.script = list(self.versions)

    def test_exports(self):
        output = subprocess.run(['nm', '-D', '--defined-only', LIBRARY], capture_output=True, text=True, check=True).stdout
        exported = [line.split()[2] for line in output.splitlines() if line.split()[1] != 'A']
        self.assertEqual(sorted(exported), sorted(f'{name}@@{version}' for name, version in self.versions.items()))

    def test_header(self):
        self.assertEqual(sorted(declared()), sorted(self.script))

    def test_man_page(self):
        page = (TOP / 'docs/man/libtdp.3').read_text()
        self.assertEqual([name for name in self.script if name not in page], [])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1], verbosity=2)
