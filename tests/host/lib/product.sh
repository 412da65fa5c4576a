# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# The product's Debian packages: built by packaging/build-deb, installed on the amd host.

# Do our modules come from tdpd-kvm-modules? That package is for one kernel; other hosts get the modules as files.
modules_are_packaged() {
        [[ $FLAVOUR == gtdp ]] && (( ! BARE ))
}

# Sets DEBS: the packages that go onto the host.
product_prepare() {
        local lock deb
        DEBS=()
        (( ! BARE )) || return 0
        [[ -x $ROOT/packaging/build-deb ]] || {
                say "packaging/build-deb is not there: the host has no tdpd"
                BARE=1
                return 0
        }

        mkdir -p "$BUILD"
        exec {lock}>"$BUILD/deb.lock"
        flock "$lock"
        # Without the modules where they are not used, so that such a host can be had while they do not build.
        local -a sources=(tdpd)
        ! modules_are_packaged || sources+=(tdpd-kvm-modules)
        "$ROOT/packaging/build-deb" "${sources[@]}" {lock}>&- >"$BUILD/deb.log" 2>&1 || {
                tail -n 40 "$BUILD/deb.log" >&2
                die_host "packaging/build-deb failed; all of its output is in $BUILD/deb.log (--bare does without packages)"
        }
        # Copies: another build may replace them while they are being installed.
        mkdir -p "$RUN/debs"
        cp "$ROOT"/build/deb/*.deb "$RUN/debs/" 2>/dev/null || die_host "packaging/build-deb left no packages in build/deb"
        exec {lock}>&-

        for deb in "$RUN"/debs/*.deb; do
                case $(basename "$deb") in
                *-dev_*|*-dbgsym_*)     ;;
                tdpd-kvm-modules_*)     ! modules_are_packaged || DEBS+=("$deb");;
                *)                      DEBS+=("$deb");;
                esac
        done
        (( ${#DEBS[@]} )) || die_host "packaging/build-deb left no packages of use in build/deb"
}

# Packages of the distribution that ours depend on, without our own; the first of alternatives.
product_depends() {
        local deb
        (( ${#DEBS[@]} )) || return 0
        for deb in "${DEBS[@]}"; do
                dpkg-deb -f "$deb" Pre-Depends Depends
        done | sed 's/^[A-Za-z-]*: //' | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/:.*//; s/[[:space:]]//g' |
                grep -v -x -F -f <(for deb in "${DEBS[@]}"; do dpkg-deb -f "$deb" Package; done) |
                grep . | sort -u || :
}
