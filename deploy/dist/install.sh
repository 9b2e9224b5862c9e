#!/bin/sh
# Installs Berth from the folder that this script lies in, or removes it again. It changes nothing outside of its prefix and needs
# no root.
#   ./install.sh                      into ~/.local
#   ./install.sh --prefix /usr/local  elsewhere
#   ./install.sh --uninstall          removes what was installed, and nothing else
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=
uninstall=no

say() { echo "berth: $*"; }
die() { echo "berth: $*" >&2; exit 1; }

usage() {
    echo "usage: ./install.sh [--prefix DIR] [--uninstall]"
    echo "  --prefix DIR   where to install (default: ~/.local); DIR/bin is to be on your PATH"
    echo "  --uninstall    remove what an earlier run installed there"
}

while [ $# -gt 0 ]; do
    case "$1" in
    --prefix)
        [ $# -gt 1 ] || die "--prefix needs a folder, such as --prefix /usr/local"
        prefix=$2
        shift
        ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --uninstall) uninstall=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        die "unknown option $1"
        ;;
    esac
    shift
done

if [ -z "$prefix" ]; then
    [ -n "${HOME:-}" ] || die "HOME is not set: name a folder with --prefix"
    prefix=$HOME/.local
fi
case "$prefix" in
/*) ;;
*) prefix=$(pwd)/$prefix ;;
esac

# Every file that was installed, one per line, relative to the prefix. Not in share/berth: with the default prefix that is the
# folder of a server.
list=share/doc/berth/installed

# Whether a line of the list can be one that this script wrote: it stays below the prefix.
is_below() {
    case "/$1/" in
    //* | */../*) return 1 ;;
    esac
}

if [ $uninstall = yes ]; then
    [ -f "$prefix/$list" ] || die "nothing is installed in $prefix ($prefix/$list is missing)"
    while IFS= read -r file; do
        is_below "$file" || continue
        if [ "$file" = bin/runai ] && [ "$(readlink "$prefix/$file" 2>/dev/null)" != berth ]; then
            continue
        fi
        if [ -e "$prefix/$file" ] || [ -L "$prefix/$file" ]; then
            rm -f "$prefix/$file" || die "$prefix/$file cannot be removed: run this as its owner"
            say "removed $prefix/$file"
        fi
    done <"$prefix/$list"
    rm -f "$prefix/$list"
    rmdir "$prefix/share/doc/berth" 2>/dev/null || true
    say "Berth is removed from $prefix; the folders of servers (such as ~/.local/share/berth) are untouched"
    exit 0
fi

# Everything is checked before the first file is written.
[ "$(uname -s)" = Linux ] || die "Berth runs on Linux; this is $(uname -s)"
[ -x "$here/berth" ] || die "$here/berth is missing: unpack the whole archive and run its install.sh"
if [ -f "$here/ARCH" ] && [ "$(cat "$here/ARCH")" != "$(uname -m)" ]; then
    die "this archive is for $(cat "$here/ARCH"), and this machine is $(uname -m): get the archive for $(uname -m)"
fi
if ! version=$("$here/berth" --version 2>&1); then
    echo "$version" >&2
    die "$here/berth does not start on this machine: it needs glibc 2.31 or later (ldd --version shows yours)"
fi
if ! mkdir -p "$prefix" 2>/dev/null || ! [ -w "$prefix" ]; then
    die "$prefix is not writable: choose another folder with --prefix, or run this as its owner"
fi
foreign=no
if [ -e "$prefix/bin/runai" ] || [ -L "$prefix/bin/runai" ]; then
    [ "$(readlink "$prefix/bin/runai" 2>/dev/null)" = berth ] || foreign=yes
fi
if [ -e "$prefix/bin/berth" ] && ! [ -f "$prefix/$list" ]; then
    die "$prefix/bin/berth is there and was not installed by this script: move it away, or choose another --prefix"
fi

new=
# Notes a file before it is there, so that what was installed in part can be installed again or removed.
note() {
    mkdir -p "$(dirname "$prefix/$list")"
    grep -qxF "$1" "$prefix/$list" 2>/dev/null || echo "$1" >>"$prefix/$list"
    new="$new$1
"
}

# Puts a file into its place at once: a berth that runs keeps its old one.
place() {
    note "$2"
    mkdir -p "$(dirname "$prefix/$2")"
    cp "$1" "$prefix/$2.new.$$"
    chmod "$3" "$prefix/$2.new.$$"
    mv "$prefix/$2.new.$$" "$prefix/$2"
    say "installed $prefix/$2"
}

place "$here/berth" bin/berth 755
if [ $foreign = yes ]; then
    say "left $prefix/bin/runai alone: it is another program; make a link of your own to $prefix/bin/berth"
else
    note bin/runai
    ln -sf berth "$prefix/bin/runai"
    say "installed $prefix/bin/runai, the same program in Run:AI's spelling"
fi
if [ -d "$here/share" ]; then
    # Names in the archive have no white space.
    for file in $(cd "$here" && find share -type f | sort); do
        place "$here/$file" "$file" 644
    done
fi
for file in LICENSE README.md; do
    if [ -f "$here/$file" ]; then
        place "$here/$file" "share/doc/berth/$file" 644
    fi
done
# What an earlier version had and this one has not is removed.
if [ -f "$prefix/$list" ]; then
    while IFS= read -r file; do
        is_below "$file" || continue
        if ! printf '%s' "$new" | grep -qxF "$file" && { [ "$file" != bin/runai ] || [ $foreign = no ]; }; then
            rm -f "$prefix/$file"
            say "removed $prefix/$file, which this version has not"
        fi
    done <"$prefix/$list"
fi
printf '%s' "$new" >"$prefix/$list"

say "$version is installed"
case ":$PATH:" in
*":$prefix/bin:"*) ;;
*) say "$prefix/bin is not on your PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
say "next: berth up --nodes 2xdgx1"
