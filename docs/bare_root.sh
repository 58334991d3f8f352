#!/bin/sh
# Proves the tutorial where nothing else is: sh docs/bare_root.sh FOLDER [PAGE]
#
# FOLDER becomes a bare Debian, with this repository in it, and the page is played there as a reader
# plays it: every command of it, installing included, from the first to the last. Needs root,
# debootstrap, and a network.
set -eu
root=$1
repository=$(cd "$(dirname "$0")/.." && pwd)
page=${2:-$repository/docs/tutorial/index.md}

[ -x "$root/bin/sh" ] || debootstrap --variant=minbase --include=ca-certificates,python3 \
    bookworm "$root"
rm -rf "$root/dmlc" "$root/tutorial"
mkdir -p "$root/dmlc" "$root/tutorial"
git -C "$repository" archive HEAD | tar -x -C "$root/dmlc"
python3 "$repository/docs/listings.py" "$page" --script > "$root/tutorial/tutorial.sh"

# What any machine has, and a folder has not: names of hosts, certificates, /proc, /sys and /dev.
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
for place in proc sys dev; do
    mount --bind "/$place" "$root/$place" && mounted="$place ${mounted:-}"
done
trap 'for place in ${mounted:-}; do umount "$root/$place"; done' EXIT

chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DMLC=/dmlc \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt DEBIAN_FRONTEND=noninteractive \
    sh -c 'apt-get update -q && cd /tutorial && sh tutorial.sh'
test -f "$root/tutorial/proof/README.txt"
echo "the tutorial plays in a bare root: $root/tutorial/proof is its folder for DxDispatch"
