#!/bin/sh
# After files are installed. dpkg calls it with "configure OLD" (OLD is empty the first time),
# rpm with the number of installed versions. It starts nothing: the configuration has no SSP yet.
set -eu
case "$1" in
configure) upgrade=${2:-} ;;
1) upgrade= ;;
[2-9]*) upgrade=yes ;;
*) exit 0 ;; # dpkg undoes another step
esac
systemd-sysusers adbuffer.conf
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ -z "$upgrade" ]; then
	echo "adbuffer: put your SSPs into /etc/adbuffer/adbuffer.yaml, then: systemctl enable --now adbuffer"
	exit 0
fi
systemctl is-active --quiet adbuffer.service || exit 0
# The configuration may need what the unit's drop-ins set: ADBUFFER_CONFIG, other variables, credentials. The
# process that runs has them.
check() {
	pid=$(systemctl show --value --property=MainPID adbuffer.service)
	xargs -0 sh -c 'exec env -i "PATH=$PATH" ADBUFFER_CONFIG=/etc/adbuffer/adbuffer.yaml "$@" adbuffer check --quiet' check <"/proc/$pid/environ"
}
# The sockets hold new connections until the new process is ready.
if ! check; then
	echo "adbuffer: the previous version keeps running, since this one refuses the configuration. Change it, then: systemctl restart adbuffer" >&2
elif ! systemctl restart adbuffer.service; then
	echo "adbuffer: the new version did not start: journalctl -u adbuffer" >&2
fi
