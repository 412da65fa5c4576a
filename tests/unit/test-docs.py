#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a client can call, read, hear, pass and get back as an error is in the documents, and nothing else is."""

import os
import pathlib
import re
import unittest
import xml.etree.ElementTree

TOP = pathlib.Path(os.environ['SOURCE_ROOT'])
CONTRACT = (TOP / 'docs/ARCHITECTURE.md').read_text()


def part(interface):
    """The section of an interface."""
    return re.split(r'(?m)^### ', CONTRACT.split(f'\n### {interface}', 1)[1], maxsplit=1)[0]


class Docs(unittest.TestCase):
    def test_members(self):
        """Nothing is in the live interface that is not told: that the file is live, test-interface.c sees to."""
        tree = xml.etree.ElementTree.parse(TOP / 'daemon/org.tdpd1.xml')
        seen = 0
        for interface in tree.findall('interface'):
            text = part(interface.get('name'))
            for member in interface:
                if member.tag not in ('method', 'property', 'signal'):
                    continue
                seen += 1
                # `Name(...) -> ...`, `Name s`, or a bare `Name`.
                self.assertRegex(text, rf'`{member.get("name")}[`( ]', f'{interface.get("name")}.{member.get("name")}')
                if member.tag == 'property':
                    self.assertRegex(text, rf'`{member.get("name")}( {re.escape(member.get("type"))})?`')
        self.assertGreater(seen, 100)

    def test_options(self):
        for file, key in (('daemon/options.c', r'\{ "([a-z-]+)", \'.\', OPTION'), ('daemon/handoff-options.c', r'\{ "([a-z-]+)", ')):
            keys = re.findall(key, (TOP / file).read_text())
            self.assertGreater(len(keys), 4, file)
            for word in keys:
                if word not in ('bytes',):  # of the request itself
                    self.assertIn(f'`{word}`', CONTRACT, file)

    def test_environment(self):
        """What is looked at and was not set by systemd or the terminal."""
        for folder, page in (('daemon', 'tdpd.8'), ('client', 'tdpctl.1')):
            sources = ''.join(f.read_text() for f in (TOP / folder).rglob('*.c'))
            for name in set(re.findall(r'getenv\("(\w+)"', sources)) - {'FDSTORE', 'NOTIFY_SOCKET', 'JOURNAL_STREAM'}:
                self.assertIn(name, (TOP / 'docs/man' / page).read_text(), page)

    def test_errors(self):
        text = CONTRACT.split('\n### Errors', 1)[1].split('\n## ', 1)[0]
        names = re.findall(r'TDP_ERROR_PREFIX "(\w+)"', (TOP / 'daemon/bus-error.h').read_text())
        self.assertGreater(len(names), 20)
        self.assertEqual(sorted(set(re.findall(r'`([A-Z]\w+)`', text))), sorted(names))


if __name__ == '__main__':
    unittest.main()
