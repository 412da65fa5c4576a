#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""tdpctl metrics: OpenMetrics as Prometheus' own parser reads it, and the example alerts on it.

The interpreter is Debian's, for which Debian packages the parser.
"""

import os
import re
import shutil
import subprocess
import sys

from lab import Lab, TDPD, TOP, main

try:
    import yaml
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError as error:
    print(f'{error}: install python3-prometheus-client and python3-yaml', file=sys.stderr)
    raise SystemExit(77) from None

RULES = TOP / 'config/prometheus/tdpd.rules.yml'
GIB = 1 << 30


def parse(text):
    """{(sample, label, ...): value}, of text that the parser accepts and that has no sample twice."""
    samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ('gauge', 'counter'), family
        assert not family.unit or family.name.endswith(f'_{family.unit}'), family
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in samples, key
            samples[key] = sample.value
    return samples


class Text(Lab):
    def metrics(self):
        return parse(self.tdpctl('metrics').stdout)

    def test_parser_is_strict(self):
        """What the other tests rest on."""
        for text in ['tdpd_x 1\n', '# TYPE a gauge\na 1\na 2\n# EOF\n', '# TYPE a counter\na 1\n# EOF\n',
                     '# TYPE a gauge\na{b="c"d"} 1\n# EOF\n', '# TYPE a gauge\n# UNIT a bytes\na 1\n# EOF\n',
                     '# TYPE a gauge\n# TYPE b gauge\na 1\nb 1\na{c="1"} 1\n# EOF\n']:
            with self.subTest(text), self.assertRaises((ValueError, AssertionError)):
                parse(text)

    def test_vms(self):
        self.start_fake()
        empty = self.metrics()
        self.assertEqual({key for key in empty if key[0].startswith('tdpd_vm')}, set())
        self.assertEqual(empty['tdpd_kernel_usable',], 1)

        self.tdpctl('attach', 'db', os.getpid())
        samples = self.metrics()
        vm = self.json('show', 'db')
        for key in ('bytes', 'mapped_bytes', 'pinned_bytes', 'built_bytes'):
            self.assertEqual(samples[f'tdpd_vm_{key}', 'db'], vm[key])
        self.assertGreater(vm['mapped_bytes'], 0)
        self.assertEqual(samples['tdpd_vm_hole_bytes', 'db'], 0)
        self.assertEqual(samples['tdpd_vm_faults_since_build_total', 'db'], 0)
        pool = self.json('nodes')[0]['pools'][0]
        for key, name in [('total', ''), ('free', '_free'), ('reserved', '_reserved'), ('surplus', '_surplus'),
                          ('leased', '_leased')]:
            self.assertEqual(samples[f'tdpd_pool{name}_bytes', '0', '2M'], pool[key] * (2 << 20))
        leaked = {key[1:]: value for key, value in samples.items() if key[0] == 'tdpd_pool_leaked_bytes'}
        self.assertEqual(leaked, {('0', '2M'): GIB, ('1', '1G'): GIB})
        targets = {key[1:]: value for key, value in samples.items() if key[0] == 'tdpd_pool_target_bytes'}
        self.assertEqual(targets, {('0', '2M'): self.json('nodes')[0]['targets'][0]['pages'] * (2 << 20)})
        warm = {key[1:]: value for key, value in samples.items() if key[0] == 'tdpd_pool_warm_bytes'}
        self.assertEqual(warm, {('0', '2M'): 32 << 20, ('0', '4K'): 1 << 20})

    def test_holes_by_reason(self):
        """Each reason of the contract is always there; what later daemons add does not add label values."""
        self.start_fake()
        for name in ('db', 'torn'):
            self.tdpctl('attach', name, os.getpid())
        samples = self.metrics()
        reasons = {key[2]: value for key, value in samples.items() if key[:2] == ('tdpd_vm_lost_bytes_total', 'torn')}
        self.assertEqual(reasons, {'notifier': 4096, 'slot': 0, 'dirty-log': 0, 'nx-huge': 0, 'request': 0,
                                   'other': (1 << 21) + (1 << 30)})
        self.assertEqual(samples['tdpd_vm_hole_bytes', 'torn'], 8192)
        self.assertEqual(samples['tdpd_vm_faults_since_build_total', 'torn'], 3)
        self.assertEqual(samples['tdpd_vm_healed_bytes_total', 'torn'], 4096)

    def test_handoffs(self):
        """Each state and reason is always there, and no other one."""
        self.start_fake()
        self.tdpctl('attach', 'db', os.getpid())
        self.tdpctl('handoff', 'offer', 'db')
        samples = self.metrics()
        states = {key[1:]: value for key, value in samples.items() if key[0] == 'tdpd_handoffs'}
        self.assertEqual({key for key, value in states.items() if value}, {('source', 'offered')})
        self.assertEqual(states['source', 'offered'], 1)
        self.assertEqual(len(states), 20)
        aborted = {key[1:]: value for key, value in samples.items() if key[0] == 'tdpd_handoffs_aborted_total'}
        self.assertEqual({key: value for key, value in aborted.items() if value},
                         {('source', 'no-pages'): 2, ('destination', 'other'): 5})
        self.assertEqual(len(aborted), 28)
        self.assertEqual(samples['tdpd_handoffs_committed_total', 'source'], 3)
        self.assertEqual(samples['tdpd_handoffs_committed_total', 'destination'], 0)

    def test_names(self):
        """The daemon takes plain names only, but it is not for that that the text is well-formed."""
        self.start_fake()
        names = ['a"b', 'a\\b', 'a\nb', 'a{b="c"} 1', '# EOF', 'ä €', ' ', '}']
        for name in names:
            self.tdpctl('attach', name, os.getpid())
        self.assertEqual({key[1] for key in self.metrics() if key[0] == 'tdpd_vm_bytes'}, set(names))

    def test_json(self):
        self.start_fake()
        self.tdpctl('attach', 'torn', os.getpid())
        as_json = {(sample['name'] + ('_total' if sample['type'] == 'counter' else ''), *sample['labels'].values()):
                   sample['value'] for sample in self.json('metrics')}
        self.assertEqual(as_json, self.metrics())

    def test_no_daemon(self):
        """No half answer, and none that says all is zero."""
        self.start_bus()
        self.assertEqual(self.tdpctl('metrics', code=3).stdout, '')
        self.assertEqual(self.tdpctl('metrics', 'now', code=2).stdout, '')

    def test_real_daemon(self):
        """Nodes and pools of another machine, through the whole product."""
        sysfs = self.folder / 'sys'
        files = {'devices/system/node/online': '0,2'}
        for node, mem, pools in [(0, 64, {'2048': (1024, 1000, 24), '1048576': (16, 16, 0)}), (2, 32, {'2048': (8, 0, 0)})]:
            base = f'devices/system/node/node{node}'
            files[f'{base}/cpulist'] = str(node)
            files[f'{base}/meminfo'] = (f'Node {node} MemTotal: {mem << 20} kB\nNode {node} MemFree: {mem << 18} kB\n')
            for size, counts in pools.items():
                for name, count in zip(('nr', 'free', 'surplus'), counts):
                    files[f'{base}/hugepages/hugepages-{size}kB/{name}_hugepages'] = str(count)
        files['kernel/mm/hugepages/hugepages-2048kB/resv_hugepages'] = '7'
        files['kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages'] = '0'
        for name, text in files.items():
            (sysfs / name).parent.mkdir(parents=True, exist_ok=True)
            (sysfs / name).write_text(text + '\n')

        self.start_bus()
        self.start_on_bus(TDPD, f'--bus={self.environment["DBUS_SYSTEM_BUS_ADDRESS"]}', f'--sysfs-root={sysfs}',
                          '--device=/nonexistent')
        samples = self.metrics()
        mib2 = 2 << 20
        expected = {
            ('tdpd_build_info', (TOP / 'VERSION').read_text().strip()): 1, ('tdpd_kernel_usable',): 0,
            ('tdpd_node_memory_bytes', '0'): 64 * GIB, ('tdpd_node_memory_bytes', '2'): 32 * GIB,
            ('tdpd_node_memory_free_bytes', '0'): 16 * GIB, ('tdpd_node_memory_free_bytes', '2'): 8 * GIB,
        }
        for node, size, page, (total, free, reserved, surplus) in [
                ('0', '2M', mib2, (1024, 1000, 7, 24)), ('0', '1G', GIB, (16, 16, 0, 0)), ('2', '2M', mib2, (8, 0, 7, 0))]:
            for name, pages in [('', total), ('_free', free), ('_reserved', reserved), ('_surplus', surplus), ('_leased', 0), ('_warm', 0),
                                ('_leaked', 0)]:
                expected[f'tdpd_pool{name}_bytes', node, size] = pages * page
        handoffs = {key: samples.pop(key) for key in list(samples) if key[0].startswith('tdpd_handoffs')}
        self.assertEqual(set(handoffs.values()), {0})
        self.assertEqual({key[0] for key in handoffs},
                         {'tdpd_handoffs', 'tdpd_handoffs_committed_total', 'tdpd_handoffs_aborted_total'})
        self.assertEqual(samples, expected)


class Alerts(Lab):
    """That they fire when they should is promtool's to say: Debian's prometheus, of which no more is needed."""

    def rules(self):
        return [rule for group in yaml.safe_load(RULES.read_text())['groups'] for rule in group['rules']]

    def test_metrics_exist(self):
        self.start_fake()
        self.tdpctl('attach', 'db', os.getpid())
        known = {key[0] for key in parse(self.tdpctl('metrics').stdout)}
        rules = self.rules()
        self.assertGreater(len(rules), 3)
        for rule in rules:
            self.assertLessEqual({'alert', 'expr', 'labels', 'annotations'}, set(rule))
            used = set(re.findall(r'\btdpd_\w+', rule['expr'] + rule['annotations'].get('description', '')))
            self.assertLessEqual(used, known, rule['alert'])
            self.assertEqual(rule['expr'].count('('), rule['expr'].count(')'))

    def test_idle_pool_is_no_pressure(self):
        promtool = shutil.which('promtool', path=f"{os.environ['PATH']}:{TOP / 'build/tools'}")
        if not promtool:
            self.skipTest('there is no promtool (package prometheus): scripts/install-deps puts it in build/tools')
        for name in (RULES, TOP / 'tests/client/tdpd.rules.test.yml'):
            shutil.copy(name, self.folder)
        for words in (['check', 'rules', RULES.name], ['test', 'rules', 'tdpd.rules.test.yml']):
            result = subprocess.run([promtool, *words], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == '__main__':
    main()
