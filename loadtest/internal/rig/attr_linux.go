package rig

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// LimitFiles limits the descriptors of the process. restore sets the limit back.
func (p *Process) LimitFiles(n int) (restore func()) {
	set := func(limit, old *unix.Rlimit) { p.rig.Check(unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, limit, old)) }
	var usual unix.Rlimit
	set(nil, &usual)
	set(&unix.Rlimit{Cur: uint64(n), Max: usual.Max}, nil)
	return func() { set(&usual, nil) }
}
