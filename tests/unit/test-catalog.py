#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""daemon/log-message.h, config/tdpd.catalog and what the daemon logs fit together: ids, texts, fields."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TOP = pathlib.Path(os.environ['SOURCE_ROOT'])
SHORTHANDS = {'FIELD_VM': {'TDP_VM', 'TDP_UID'}, 'FIELD_BYTES': {'TDP_BYTES'}}


def read_header():
    text = (TOP / 'daemon/log-message.h').read_text()
    return dict(re.findall(r'\bX\((\w+),\s*LOG_\w+,\s*"(\w+)"\)', text))


def read_catalog():
    text = (TOP / 'config/tdpd.catalog').read_text()
    entries = re.split(r'^-- ', text, flags=re.M)[1:]
    return {entry.split('\n', 1)[0]: entry.split('\n', 1)[1] for entry in entries}


def arguments(text, start):
    """What stands between the bracket at start and the one that closes it; brackets in strings pair up."""
    depth = 0
    for end in range(start, len(text)):
        depth += {'(': 1, ')': -1}.get(text[end], 0)
        if depth == 0:
            return text[start + 1:end]
    raise ValueError('bracket without an end')


def read_uses():
    """(message, fields) of each call, over all of the daemon. A message that is chosen first stands by itself."""
    for path in sorted((TOP / 'daemon').glob('*.c')):
        text = path.read_text()
        for call in re.finditer(r'\blog_message(?:_errno)?\(', text):
            inside = arguments(text, call.end() - 1)
            if 'LogMessage' in inside:
                continue
            at = re.search(r'\b(?:(\w+)_)?FIELDS\(', inside)
            # The file may have a macro for fields that go together.
            given = re.search(rf'#define {at[1]}_FIELDS\((?:.*\\\n)*.*', text)[0] if at[1] else arguments(inside, at.end() - 1)
            fields = set(re.findall(r'"(TDP_\w+)"', given))
            for name, several in SHORTHANDS.items():
                if re.search(rf'\b{name}\b', given):
                    fields |= several
            first = re.match(r'\s*MESSAGE_(\w+)', inside)
            names = [first[1]] if first else re.findall(r'\bMESSAGE_(\w+)', text)
            yield from ((path.name, name, fields) for name in names)


class Catalog(unittest.TestCase):
    def test_ids(self):
        header = read_header()
        self.assertGreater(len(header), 15)
        self.assertEqual(len(set(header.values())), len(header), 'an id is there twice')
        for name, number in header.items():
            self.assertRegex(number, r'^[0-9a-f]{32}$', name)

    def test_entries(self):
        header, catalog = read_header(), read_catalog()
        self.assertEqual(set(header.values()), set(catalog))
        for number, text in catalog.items():
            self.assertRegex(text, r'\ASubject: .+\nDefined-By: tdpd\nDocumentation: \S+\n\n\S', number)

    def test_every_message_is_logged_with_its_fields(self):
        header, catalog = read_header(), read_catalog()
        used = set()
        for path, name, fields in read_uses():
            self.assertIn(name, header, path)
            used.add(name)
            wanted = set(re.findall(r'@(\w+)@', catalog[header[name]]))
            self.assertLessEqual(wanted, fields, f'{path}: MESSAGE_{name} lacks what its text wants')
        self.assertEqual(used, set(header))

    @unittest.skipUnless(shutil.which('journalctl'), 'there is no journalctl')
    def test_journalctl_takes_it(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root, 'usr/lib/systemd/catalog')
            folder.mkdir(parents=True)
            pathlib.Path(root, 'var/lib/systemd/catalog').mkdir(parents=True)
            shutil.copy(TOP / 'config/tdpd.catalog', folder)
            for verb in '--update-catalog', '--list-catalog':
                done = subprocess.run(['journalctl', verb, f'--root={root}'], check=True, text=True,
                                      capture_output=True)
                self.assertNotRegex(done.stderr, 'tdpd.catalog')
            self.assertEqual({line.split()[0] for line in done.stdout.splitlines()}, set(read_header().values()))


if __name__ == '__main__':
    unittest.main()
