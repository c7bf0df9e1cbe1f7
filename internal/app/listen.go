package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// listen opens the traffic listener. A unix socket's file that nobody serves
// any more is removed first; one that is served is a fault, and what is no
// socket is left alone.
func listen(network, addr string, mode os.FileMode) (net.Listener, error) {
	if network != "unix" {
		return net.Listen(network, addr)
	}
	if err := removeStaleSocket(addr); err != nil {
		return nil, err
	}
	// Nobody may connect between bind and chmod.
	old := syscall.Umask(0o177)
	l, err := net.Listen(network, addr)
	syscall.Umask(old)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(addr, mode); err != nil {
		l.Close() //nolint:errcheck // the chmod's error matters
		return nil, fmt.Errorf("server.socket_mode: %w", err)
	}
	return l, nil
}

func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return errors.New("a file that is no socket is in the way")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close() //nolint:errcheck // it was opened only to see
		return errors.New("another process serves this socket")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
