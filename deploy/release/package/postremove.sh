#!/bin/sh
# After files are removed, by dpkg with "remove" or "purge". A purge leaves nothing.
set -eu
if [ "$1" = purge ]; then
	rm -rf /etc/adbuffer /etc/systemd/system/adbuffer.service.d /etc/systemd/system/adbuffer.socket.d /etc/systemd/system/adbuffer-admin.socket.d
	if getent passwd adbuffer >/dev/null; then
		userdel adbuffer
	fi
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
