#!/bin/sh
# Before files are removed. dpkg calls it with "remove" or "upgrade", rpm with the number of versions
# that remain.
set -eu
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
units='adbuffer.socket adbuffer-admin.socket adbuffer.service'
# shellcheck disable=SC2086 # a list
if [ -d /run/systemd/system ]; then
	systemctl stop $units
fi
# shellcheck disable=SC2086 # a list
systemctl disable --quiet $units
