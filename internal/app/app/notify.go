package app

import (
	"fmt"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The methods below notify systemd, if a unit with Type=notify-reload or Type=notify asks for it by
// NOTIFY_SOCKET; see man 3 sd_notify.

func (a *App) notifyReady() {
	if a.Ready() {
		a.notify(daemon.SdNotifyReady + "\nSTATUS=ready")
	}
}

func (a *App) notifyStopping() { a.notify(daemon.SdNotifyStopping + "\nSTATUS=draining") }

// notifyReloading must be followed by notifyReady, even if the reload fails.
func (a *App) notifyReloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		a.log.Warn("cannot notify the service manager", zap.Error(err))
		return
	}
	a.notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000))
}

func (a *App) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.log.Warn("cannot notify the service manager", zap.Error(err))
	}
}
