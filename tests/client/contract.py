# SPDX-License-Identifier: LGPL-2.1-or-later
"""The keys of tdpctl's JSON, as tdpctl(1) has them."""

VM_KEYS = {
    'name', 'state', 'pid', 'uid', 'bytes', 'page_size', 'nodes', 'decision', 'reasons', 'rule', 'mapped_bytes', 'pinned_bytes',
    'built_bytes', 'leaves_1g', 'leaves_2m', 'leaves_4k', 'holes', 'hole_reasons', 'faults_since_build', 'faults_other',
    'slots', 'heals', 'healed_bytes', 'heals_put_off', 'kept_bytes', 'split_leaves', 'collapsed_leaves', 'auto_builds',
    'auto_errors', 'dropped_events', 'table_pages', 'populate_usec', 'build_usec', 'generation', 'object',
}
VMS_KEYS = {'name', 'state', 'object', 'pid', 'bytes'}
STATUS_KEYS = {'version', 'calibration', 'state', 'features', 'policy', 'kernel', 'draining', 'handoff_outcomes', 'quarantine', 'vms', 'jobs', 'nodes',
               'bytes'}
WARM_KEYS = {'flavour', 'bytes', 'page_size', 'node', 'wanted', 'ready', 'filling', 'held_back', 'why'}
NODE_KEYS = {'id', 'cpus', 'memory_total', 'memory_free', 'pools', 'available', 'targets'}
HOLDER_KEYS = {'page_size', 'node', 'pages', 'pid', 'uid', 'kind', 'name', 'file'}
POOLS_KEYS = {'node', 'page_size', 'total', 'free', 'available', 'reserved', 'surplus', 'leased', 'for_others', 'target',
              'state'}
AVAILABLE_KEYS = {'page_size', 'available', 'for_others'}
TARGET_KEYS = {'page_size', 'pages', 'got', 'state'}
POOL_KEYS = {'page_size', 'total', 'free', 'reserved', 'surplus', 'leased'}
JOB_KEYS = {'id', 'type', 'state', 'vm', 'phase', 'done', 'total'}
EXPLAIN_KEYS = {'decision', 'reasons', 'plan'}
REASON_KEYS = {'reason', 'text'}
CALIBRATION_KEYS = {'measured_at', 'why', 'leaves', 'populate'}
LEAF_KEYS = {'page_size', 'fault_ns', 'fault_measured', 'build_ns', 'build_measured', 'not_measured_as'}
RATE_KEYS = {'node', 'page_size', 'bytes_per_sec'}
# and populate_usec, once it was measured
PLAN_KEYS = {
    'bytes', 'page_size', 'nodes', 'parts', 'pinned_bytes', 'vfio_bytes', 'rule', 'leaves', 'leaf_size', 'saved_usec', 'build_usec', 'pin_usec',
    'vcpus', 'migrations', 'fault_ns', 'fault_measured', 'build_ns', 'build_measured', 'measured_at', 'not_measured',
}
MIGRATE_KEYS = {
    'name', 'to', 'migrated', 'owner', 'failed_phase', 'how', 'handoff', 'mode', 'mode_there', 'bytes', 'transferred_bytes', 'built_bytes',
    'total_usec', 'blackout_usec', 'phases',
}
