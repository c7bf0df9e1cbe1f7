package rig

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// LimitFiles limits the descriptors of the process. restore sets the limit back.
func (p *Process) LimitFiles(n int) (restore func() error, err error) {
	var usual unix.Rlimit
	if err := unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, nil, &usual); err != nil {
		return nil, err
	}
	restore = func() error { return unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &usual, nil) }
	return restore, unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: usual.Max}, nil)
}
