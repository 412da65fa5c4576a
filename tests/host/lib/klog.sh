# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# Judges the kernel's log: a command that succeeded on a kernel that complained has failed.

KLOG_BAD='WARNING:|BUG:|kernel BUG at|Call Trace|Oops|general protection|Kernel panic'
KLOG_BAD+='|INFO: task .* blocked|self-detected stall|detected stalls on'
KLOG_BAD+='|possible (circular|recursive|irq lock|deadlock)|inconsistent lock state|held lock freed'
KLOG_BAD+='|KASAN:|UBSAN:|KCSAN:|ODEBUG:|new suspected memory leaks'
KLOG_BAD+='|list_(add|del) corruption|refcount_t:|BUG [^:]*\((Not )?[Tt]ainted|page_counter underflow'
# A tool that gives up sees nothing from then on.
KLOG_BAD+='|kmemleak: (Cannot allocate a kmemleak_object|Kernel memory leak detector disabled)'

# Takes away a stack that a test has brought about on purpose: KVM asks for some of its memory without __GFP_NOWARN, so the kernel
# tells with a stack when gtdp_failnth_test makes that fail.
klog_expected() {
        sed -E '/ gtdp_failnth_te: (vmalloc error|page allocation failure)/,/<\/TASK>/ { /Call Trace:/d }'
}

# klog_check FILE [MARK]: prints what is wrong with it, after the line with MARK; fails if there is something.
klog_check() {
        local first lines log=$1.judged
        if [[ ${2-} ]]; then
                sed "1,/$2/d" "$1"
        else
                cat "$1"
        fi | klog_expected >"$log"
        first=$(grep -n -a -m 1 -E "$KLOG_BAD" "$log" | cut -d: -f1) || :
        [[ $first ]] || return 0
        lines=$(grep -c -a -E "$KLOG_BAD" "$log")
        say "the kernel's log has $lines lines that tell of a problem; it starts with:"
        # "cut here" and what led to it stand above the line that matched.
        tail -n "+$(( first > 3 ? first - 3 : 1 ))" "$log" | head -n 80 | tr -d '\r' >&2
        return 1
}
