# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# To be sourced by tests on a host: checks that are counted.

passed=0 failed=0

die() { echo "${0##*/}: $*" >&2; exit 1; }

# check WHAT COMMAND...
check() {
        local what=$1
        shift
        if "$@"; then
                passed=$(( passed + 1 ))
                echo "ok      $what"
        else
                failed=$(( failed + 1 ))
                echo "FAILED  $what"
        fi
}

equal() {
        [[ $1 == "$2" ]] || { echo "  '$1' is not '$2'"; return 1; }
}

# Until a command prints the wanted value; a process that was killed is torn down by and by.
comes_to() {
        local want=$1 try value=''
        shift
        for (( try = 0; try < 300; try++ )); do
                value=$("$@")
                [[ $value != "$want" ]] || return 0
                sleep 0.1
        done
        echo "  '$*' is '$value' and not '$want'"
        return 1
}

# The line that the runner reads.
checks_end() {
        echo "$passed passed, $failed failed, 0 skipped"
        (( failed == 0 ))
}
