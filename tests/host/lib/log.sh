# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# What the tool itself says; all of it on stderr, because stdout belongs to COMMAND.

VERBOSE=0

say() {
        echo "host: $*" >&2
}

detail() {
        (( ! VERBOSE )) || say "$*"
}

# Wrong use: nothing was started.
die_usage() {
        say "$*"
        say "try '$0 --help'"
        exit 2
}

# The host is to blame, not COMMAND.
die_host() {
        say "$*"
        exit 125
}
