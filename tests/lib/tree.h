/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Folders of files that a test makes. */

/* Makes the folders above it as well; what goes wrong fails the test. */
void tree_put(const char *root, const char *file, const char *text);
/* Removes all of it, for a teardown. */
int tree_remove(const char *root);
