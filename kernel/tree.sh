# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# To be sourced: a whole kernel tree that is patched again and again, with only those files touched that change, so that
# make builds only what depends on them.

# tree_unpack TARBALL TREE: the tree as the distribution has it, unless it is there already.
tree_unpack() {
        local tarball=$1 tree=$2 origin
        [[ -e $tarball ]] || die "no $tarball: install the package $(basename "$tarball" .tar.xz)"
        origin=$(stat -c '%n %s %Y' "$tarball")
        [[ $(cat "$tree.origin" 2>/dev/null) != "$origin" ]] || return 0

        rm -rf "$tree" "$tree.pristine" "$tree.origin"
        mkdir -p "$tree"
        tar -xf "$tarball" -C "$tree" --strip-components=1 || die "cannot unpack $tarball into $tree"
        echo "$origin" >"$tree.origin"
}

# The files that patches touch, new and removed ones included.
tree_touched() {
        (( $# )) || return 0
        sed -n -E 's|^(---\|\+\+\+) [ab]/([^[:space:]]+).*|\2|p' "$@" | sort -u
}

# tree_patch TREE [PATCH]...: the distribution's tree with these patches, whatever was applied before.
tree_patch() {
        local tree=$1 pristine=$1.pristine work=$1.work f
        shift

        # What was never touched is pristine; an absent file is marked by its name.
        mkdir -p "$pristine"
        tree_touched "$@" | while read -r f; do
                [[ ! -e $pristine/$f && ! -e $pristine/$f.absent ]] || continue
                mkdir -p "$pristine/$(dirname "$f")"
                if [[ -e $tree/$f ]]; then
                        cp -p "$tree/$f" "$pristine/$f"
                else
                        touch "$pristine/$f.absent"
                fi
        done

        rm -rf "$work"
        cp -rp "$pristine" "$work"
        find "$work" -name '*.absent' -delete
        for f; do
                patch -d "$work" -p1 -s --no-backup-if-mismatch <"$f" || die "$f does not apply"
        done

        (cd "$pristine" && find . -type f) | sed 's|^\./||; s|\.absent$||' | while read -r f; do
                if [[ ! -e $work/$f ]]; then
                        rm -f "$tree/$f"
                elif ! cmp -s "$work/$f" "$tree/$f"; then
                        mkdir -p "$tree/$(dirname "$f")"
                        # Not with its old time: make has to see it.
                        cp "$work/$f" "$tree/$f"
                fi
        done
        rm -rf "$work"
}

# config_check CONFIG FRAGMENT: every line of the fragment is in the configuration.
config_check() {
        local config=$1 fragment=$2 missing
        missing=$(grep -E '^(CONFIG_|# CONFIG_.* is not set)' "$fragment" | while read -r line; do
                case $line in
                '# '*)  name=${line#'# '}; ! grep -q "^${name%% *}=" "$config" || echo "  $line";;
                *)      grep -qxF -- "$line" "$config" || echo "  $line";;
                esac
        done)
        [[ -z $missing ]] || {
                echo "$missing" >&2
                die "$fragment asks for these, but the kernel's Kconfig did not keep them: see what they depend on"
        }
}
