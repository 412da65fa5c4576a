# SPDX-License-Identifier: LGPL-2.1-or-later
"""The tests, in the order in which they are run. Each is called with (checks, results, args)."""

import test_cancel
import test_compare
import test_kill
import test_modes
import test_refuse

ALL = {
    'compare': test_compare.run,
    'cancel': test_cancel.run,
    'refuse': test_refuse.run,
    'post-copy': test_modes.post_copy,
    'modes': test_modes.run,
    'kill': test_kill.run,
}

# With another kernel on one host, so not on the same boot.
OTHERS = {
    'to-stock': test_modes.to_stock,
    'from-stock': test_modes.from_stock,
}
