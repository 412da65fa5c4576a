# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
intel_prepare() { die_host "intel: not there yet"; }
